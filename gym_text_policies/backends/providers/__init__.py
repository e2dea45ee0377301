"""Language models behind a server: OpenAI and all that speak its protocol, Ollama, TensorZero."""
