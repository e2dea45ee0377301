"""A language model in this process, read in this order; no file imports a later one.

::

    tokens        messages -> tokens
    tree          tokens of several texts -> one tree, in which what begins alike is computed once
    attention     trees in one row of tokens: who attends to whom
    linear        linear layers on a CPU, in float32 or bfloat16
    llama         the forward pass of a Llama on a CPU: transformers' numbers, sooner
    prefixes      what was read is kept by token prefix, so that a call computes only what is new
    packed        reading in packed rows, for models whose tokens meet in attention alone
    pooled        the same on a GPU: all sequences of a row attend in one product
    cached        reading by the model's own cache, for any other
    decoding      logits -> scores of the candidates, or the tokens of a text
    exactness     the fastest way to read that gives the probabilities of a model's plain forward pass
    smollm2       the embedded model as a folder
    contents      the name of a model -> what identifies its files
    adapters      the name of an adapter -> its base, its digest, and how it is asked
    models        the name of either -> weights and tokenizer
    transformers  the backend: requests -> answers
    loading       the name of a model -> its backend, at once or when it is first asked
"""
