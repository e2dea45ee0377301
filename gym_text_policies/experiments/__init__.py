"""One configuration in, one run folder out: experiments, the benchmark, and an agent for a loop of your own."""
