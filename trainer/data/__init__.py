"""Training data: records of a data set become token ids and labels, examples become batches."""
