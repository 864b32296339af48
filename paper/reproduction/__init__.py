"""The experiments of the paper, done again: columns, tables, figures and claims."""
