"""The paper's experiment again: its tables and figures, beside the printed numbers and our own policies."""
