"""Language models: from a GGUF file or a Hugging Face folder to text.

    lm = pf.llm.load("SmolLM2-135M-Instruct.gguf")
    print(lm.chat("What is the capital of France?", max_tokens=40, temperature=0))
    for piece in lm.generate("Once upon a time", max_tokens=50, seed=1, stream=True):
        print(piece, end="")

Architectures: the table in _architectures.py. Tokenizers with patterns need the package regex, chat templates jinja2: pip install pyflame[llm].
docs/language-models.md describes it all."""
from .engine import Engine, EngineFull, Finished, Request, Token
from .language_model import LanguageModel, load, load_tokenizer
from .sampling import Sampler, Sampling
from .tokenizer import TextStream, Tokenizer

__all__ = ["Engine", "EngineFull", "Finished", "LanguageModel", "Request", "Sampler", "Sampling", "TextStream", "Token", "Tokenizer", "load", "load_tokenizer"]
