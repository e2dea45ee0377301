"""A language model in this process. Read the files in this order; no file imports a later one.

From a chat template to the score of a candidate: `chat_format`, rendering, tokens, questions, transformers, prefixes, packed.

::

    rendering     messages -> text, as the model's chat template writes it
    tokens        messages -> tokens
    prefixes      a cache of the token sequences that were read; candidates behind a prompt -> their scores
    packed        reading in packed rows, for models with attention alone
    cached        reading by the model's own cache, or without one, for all other models
    linear        linear layers on a CPU, in float32 or bfloat16
    exactness     the fastest of these ways that gives the probabilities of a model's plain forward pass
    best_first    candidates -> the most probable one, without the probabilities of the others
    grammars      a JSON schema, or a tool -> which tokens may come next
    sampling      logits -> the next token
    decoding      logits -> the tokens of a text
    thinking      tokens -> where a thought ends, and what closes one that does not end
    questions     a request as tokens, on its way to an answer
    smollm2       the embedded model as a folder
    adapters      the name of a model -> what identifies it; of an adapter -> its base, and how it is asked
    models        the name of a model or an adapter -> weights and tokenizer
    transformers  the backend: requests -> answers
    loading       the name of a model -> its backend, at once or when it is first asked
"""
