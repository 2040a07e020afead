"""What requests are checked for before they wait: the same for an engine and for what stands in front of several."""
import operator

from .sampling import Sampling


def last_tokens(ids, count, most):
    """The tokens of a prompt that truncate_prompt_tokens leaves: the last `count`; all for None; for -1 those that there is room for, the last `most`, but one at least."""
    return ids if count is None else ids[-(max(1, most) if count == -1 else count):]


class Intake:
    """The base of what takes requests. It has a model (LanguageModel), max_model_len and lora_names."""

    @property
    def _known(self):
        return self.model._known()

    def _prompt(self, op, prompt_ids, priority, client, lora, receive):
        """The token ids of a prompt. Checks what all requests have."""
        ids = self.model._ids(op, prompt_ids)
        if len(ids) > self.max_model_len:
            raise ValueError(f"{op}: too many tokens; got {len(ids)}; expected at most the engine's max_model_len of {self.max_model_len}")
        if isinstance(priority, bool) or not isinstance(priority, int):
            raise ValueError(f"{op}: priority is no whole number; got {priority!r}; expected one")
        try:
            hash(client)
        except TypeError:
            raise TypeError(f"{op}: client is of the wrong type; got {type(client).__name__}; expected what can be a key of a dict, such as a text, or None") from None
        if not callable(receive):
            raise TypeError(f"{op}: receive cannot be called; got {receive!r}; expected a function of an event")
        names = self.lora_names
        if lora is not None and lora not in names:
            raise ValueError(f"{op}: there is no such adapter; got {lora!r}; expected {' or '.join(map(repr, names)) or 'none, because the engine has none'}")
        return ids

    def _settings(self, sampling, max_tokens, stop_ids, logprobs, prompt_logprobs):
        """(sampling, its Sampler, the tokens that end the text) of a request. ValueError, TypeError."""
        if isinstance(max_tokens, bool) or not isinstance(max_tokens, int) or max_tokens < 0:
            raise ValueError(f"generate: max_tokens is out of range; got {max_tokens!r}; expected a whole number from 0 upwards")
        for name, top in (("logprobs", logprobs), ("prompt_logprobs", prompt_logprobs)):
            if top is not None and (isinstance(top, bool) or not isinstance(top, int) or not 0 <= top <= 20):
                raise ValueError(f"generate: {name} is out of range; got {top!r}; expected None or a whole number from 0 to 20")
        sampling = sampling if sampling is not None else self.model._sampling({})
        if not isinstance(sampling, Sampling):
            raise TypeError(f"generate: sampling is of the wrong type; got {type(sampling).__name__}; expected a Sampling")
        sampling.check_vocabulary(self._known)
        return sampling, self.model._sampler(sampling), self.model.end_ids if stop_ids is None else frozenset(map(operator.index, stop_ids))
