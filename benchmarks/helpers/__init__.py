"""What several benchmarks need: the harness, a browser, llama.cpp."""
