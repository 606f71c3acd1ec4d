"""From text to specs: YAML, JSON, Hugging Face configs; every fault with its file and field."""
