"""A language model in this process. Read the files in this order; no file imports a later one.

::

    rendering     messages -> text, as the model's chat template writes it
    tokens        messages -> tokens
    tree          tokens of several texts -> one tree, in which a common start is computed once
    attention     several trees in one row of tokens: which tokens attend to which
    linear        linear layers on a CPU, in float32 or bfloat16
    prefixes      a cache of the token sequences that were read, so that a call computes only new tokens
    packed        reading in packed rows, for models with attention alone
    cached        reading by the model's own cache, or without one, for all other models
    sampling      logits -> the next token
    decoding      logits -> scores of the candidates, or the tokens of a text
    best_first    candidates -> the most probable one, without the probabilities of the others
    exactness     the fastest of these ways that gives the probabilities of a model's plain forward pass
    thinking      tokens -> where a thought ends, and what closes one that does not end
    grammars      JSON schemas, or sequences of tokens -> which tokens may come next
    calls         a tool -> the tokens of its valid calls
    questions     a request as tokens, on its way to an answer
    smollm2       the embedded model as a folder
    contents      the name of a model -> what identifies its files
    adapters      the name of an adapter -> its base, its digest, and how it is asked
    models        the name of a model or an adapter -> weights and tokenizer
    transformers  the backend: requests -> answers
    loading       the name of a model -> its backend, at once or when it is first asked
"""
