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

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:  # names that are imported when they are first used
    from ._beams import Beams as Beams, BeamSearchOutput as BeamSearchOutput, BeamSearchParams as BeamSearchParams, BeamSearchSequence as BeamSearchSequence
    from ._speculation import SpeculativeConfig as SpeculativeConfig
    from .conversion import Conversion as Conversion, convert as convert
    from .embedding import EmbeddingModel as EmbeddingModel, PoolerConfig as PoolerConfig, PoolingParams as PoolingParams, load_embedding as load_embedding
    from .engine import Engine as Engine, EngineFull as EngineFull, Finished as Finished, Request as Request, Token as Token
    from .grammar import Grammar as Grammar
    from .language_model import LanguageModel as LanguageModel, load as load, load_tokenizer as load_tokenizer
    from .offline import (
        LLM as LLM, CompletionOutput as CompletionOutput, EmbeddingOutput as EmbeddingOutput, EmbeddingRequestOutput as EmbeddingRequestOutput, Logprob as Logprob,
        LoRARequest as LoRARequest, RequestOutput as RequestOutput, SamplingParams as SamplingParams, StructuredOutputsParams as StructuredOutputsParams
    )
    from .sampling import Sampler as Sampler, Sampling as Sampling
    from .tokenizer import TextStream as TextStream, Tokenizer as Tokenizer
del TYPE_CHECKING

_MODULE_OF = {
    "Beams": "_beams", "BeamSearchOutput": "_beams", "BeamSearchParams": "_beams", "BeamSearchSequence": "_beams",
    "SpeculativeConfig": "_speculation",
    "Conversion": "conversion", "convert": "conversion",
    "EmbeddingModel": "embedding", "PoolerConfig": "embedding", "PoolingParams": "embedding", "load_embedding": "embedding",
    "Engine": "engine", "EngineFull": "engine", "Finished": "engine", "Request": "engine", "Token": "engine",
    "Grammar": "grammar",
    "LanguageModel": "language_model", "load": "language_model", "load_tokenizer": "language_model",
    "LLM": "offline", "CompletionOutput": "offline", "EmbeddingOutput": "offline", "EmbeddingRequestOutput": "offline", "Logprob": "offline",
    "LoRARequest": "offline", "RequestOutput": "offline", "SamplingParams": "offline", "StructuredOutputsParams": "offline",
    "Sampler": "sampling", "Sampling": "sampling",
    "TextStream": "tokenizer", "Tokenizer": "tokenizer",
}  # fmt: skip
_MODULES = frozenset({"conversion", "embedding", "engine", "grammar", "language_model", "offline", "sampling", "tokenizer", "tools"})

__all__ = ["BeamSearchOutput", "BeamSearchParams", "BeamSearchSequence", "Beams", "CompletionOutput", "Conversion", "EmbeddingModel", "EmbeddingOutput", "EmbeddingRequestOutput", "Engine", "EngineFull", "Finished", "Grammar", "LLM", "LanguageModel", "LoRARequest", "Logprob", "PoolerConfig", "PoolingParams", "Request", "RequestOutput", "Sampler", "Sampling", "SamplingParams", "SpeculativeConfig", "StructuredOutputsParams", "TextStream", "Token",
           "Tokenizer", "convert", "load", "load_embedding", "load_tokenizer"]

_refused.unknown(globals(), _MODULE_OF, _MODULES)
