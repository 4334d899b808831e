"""Labels: what people say of answers, days later, joined to the answers they are about.

words    what each rater said of one answer, and what follows from it
book     which answers have been labelled, and what became of every label
hearing  labels and answers on their way, live
joining  an answer and what is said of it, as a record that is scored under the source `label`
"""
