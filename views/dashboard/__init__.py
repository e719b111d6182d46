"""The page: the log folded into one document, served to browsers that can change nothing."""
