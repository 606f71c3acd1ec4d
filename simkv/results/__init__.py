"""What a run leaves behind: its log, the metrics drawn from it, and the result folder."""
