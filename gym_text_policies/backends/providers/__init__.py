"""Language models behind a server, a file for each provider of `gym_text_policies.backends.provider_table`, and what they share.

A request goes down this list, and its answer comes back up:

* `remote`: the base class: cache (`answer_cache`), limits on spending (`budget`), retries (`connection`), checks (`answer_checks`).
* `thought_limit`: room for the thoughts of models that think.
* `openai`, `ollama`, `tensorzero`: the providers. `connection` is a server with OpenAI's protocol, `keys` says which key it gets.
* `chat_messages`, `chat_answers`: a chat as it is sent, and how its answer is read.
* Choices: `typed_decisions`, or `exact_scores`, which tokenises prompts and takes the log-probabilities of tokens from a
  `token_server`: `llama_cpp` or `vllm`.
"""
