"""A language model in this process, read in this order; no file imports a later one.

::

    tokens        messages -> tokens
    tree          tokens of several texts -> one tree, in which what begins alike is computed once
    attention     trees in one row of tokens: who attends to whom
    llama         the forward pass of a Llama on a CPU: transformers' numbers, sooner
    prefixes      keys and values kept by token prefix, so that a call computes only what is new
    decoding      logits -> scores of the candidates, or the tokens of a text
    smollm2       the embedded model as a folder
    models        the name of a model or an adapter -> weights and tokenizer
    transformers  the backend: requests -> answers
"""
