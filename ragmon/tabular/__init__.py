"""Tables of other programs: rows of files and DataFrames, usual names of columns, and cells that hold lists."""
