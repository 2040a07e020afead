"""Language models: from a GGUF file or a Hugging Face folder to text.

    lm = pf.llm.load("SmolLM2-135M-Instruct.gguf")
    print(lm.chat("What is gravity?", max_tokens=40, temperature=0))
    for piece in lm.generate("Once upon a time", max_tokens=50, seed=1, stream=True):
        print(piece, end="")
    with pf.llm.LLM("SmolLM2-135M-Instruct.gguf") as llm:  # many prompts at once
        outputs = llm.generate(["Hello", "Once upon a time"], pf.llm.SamplingParams(max_tokens=40))

Architectures: the table in _architectures.py. Tokenizers with patterns need the package regex, chat templates jinja2: pip install regex jinja2 llguidance.
docs/language-models.md describes it all."""
from .. import _refused
from ._beams import Beams, BeamSearchOutput, BeamSearchParams, BeamSearchSequence
from ._speculation import SpeculativeConfig
from .conversion import Conversion, convert
from .embedding import EmbeddingModel, PoolerConfig, PoolingParams, load_embedding
from .engine import Engine, EngineFull, Finished, Request, Token
from .grammar import Grammar
from .language_model import LanguageModel, load, load_tokenizer
from .offline import LLM, CompletionOutput, EmbeddingOutput, EmbeddingRequestOutput, Logprob, LoRARequest, RequestOutput, SamplingParams, StructuredOutputsParams
from .sampling import Sampler, Sampling
from .tokenizer import TextStream, Tokenizer

__all__ = ["BeamSearchOutput", "BeamSearchParams", "BeamSearchSequence", "Beams", "CompletionOutput", "Conversion", "EmbeddingModel", "EmbeddingOutput", "EmbeddingRequestOutput", "Engine", "EngineFull", "Finished", "Grammar", "LLM", "LanguageModel", "LoRARequest", "Logprob", "PoolerConfig", "PoolingParams", "Request", "RequestOutput", "Sampler", "Sampling", "SamplingParams", "SpeculativeConfig", "StructuredOutputsParams", "TextStream", "Token",
           "Tokenizer", "convert", "load", "load_embedding", "load_tokenizer"]

_refused.unknown(globals())
