"""Labels: people's judgements of answers, which arrive days later and join the records of those answers.

files     files of labels
ratings   the latest rating of each rater, the consensus, and the store that counts what became of every label
pending   labels that wait for their traces
sampling  which answers are worth a label
"""
