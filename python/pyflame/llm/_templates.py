"""Chat templates: Jinja programs of a model's file that make one text of messages. They run in Jinja's sandbox.

What a user writes is never mistaken for the template's own text: a name of a special token in a message gets a mark inside (Tokenizer.guarded) before
the template runs, and a name with a mark is tokenized as text."""
import json

from ._errors import needed

MOST_TEXT = 1 << 26
ROLES = "a dict with 'role' and 'content'"
TAKEN = ("messages", "tools", "add_generation_prompt", "continue_final_message", "bos_token", "eos_token")  # names of a template that no one else may give
_NO_TEXT = ("image", "image_url", "input_image", "audio", "audio_url", "input_audio", "video", "video_url")  # types of parts of a message


def _guarded(value, guard):
    if isinstance(value, str):
        return guard(value)
    if isinstance(value, dict):
        return {guard(k) if isinstance(k, str) and not k.isidentifier() else k: v if k in ("role", "type") and isinstance(v, str) and v.isidentifier() else _guarded(v, guard) for k, v in value.items()}
    return [_guarded(v, guard) for v in value] if isinstance(value, (list, tuple)) else value


class Template:
    """A compiled template. render(messages, guard) is its text. ValueError for a template that cannot be read or refuses."""

    def __init__(self, source, names=None):
        needed("jinja2", "chat templates")
        from jinja2 import TemplateError
        from jinja2.ext import loopcontrols
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        self._names, self._error = names or {}, TemplateError
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
        environment.filters["tojson"] = lambda value, indent=None, **_: json.dumps(value, ensure_ascii=False, indent=indent)
        environment.globals["raise_exception"] = self._raise
        environment.globals["strftime_now"] = self._now
        try:
            self._template = environment.from_string(source)
        except TemplateError as e:
            raise ValueError(f"chat: the template cannot be read; got {type(e).__name__}: {e}; expected Jinja") from None

    def _raise(self, message):
        raise self._error(str(message))

    @staticmethod
    def _now(form):
        from datetime import datetime

        return datetime.now().strftime(form)

    def render(self, messages, guard, add_generation_prompt=True, continue_final_message=False, **names):
        """The text. continue_final_message: it ends within the last message, so that an answer goes on there. names: what else the template knows; texts in it are guarded, too."""
        if not isinstance(messages, (list, tuple)) or not messages:
            raise ValueError(f"chat: there are no messages; got {messages!r}; expected a list of {ROLES}")
        for m in messages:
            if not isinstance(m, dict) or not isinstance(m.get("role"), str) or not (isinstance(m.get("content"), (str, list)) or m.get("content") is None and m.get("tool_calls")):
                raise ValueError(f"chat: a message is damaged; got {str(m)[:80]}; expected {ROLES}")
            for part in m["content"] if isinstance(m.get("content"), list) else ():
                if isinstance(part, dict) and part.get("type") in _NO_TEXT:
                    raise ValueError(f"chat: a part of a message is no text; got one of the type {part['type']!r}; expected text, which is all that these models read")
            if not m["role"].isidentifier():
                raise ValueError(f"chat: a role is no word; got {m['role'][:40]!r}; expected system, user, assistant or tool")
        add_generation_prompt = add_generation_prompt and not continue_final_message
        try:
            text = self._template.render(messages=_guarded(messages, guard), add_generation_prompt=add_generation_prompt, **{**self._names, **_guarded(names, guard)})
        except Exception as e:  # whatever the file's program does
            raise ValueError(f"chat: the template refuses the messages; got {type(e).__name__}: {e}; expected messages that it takes") from None
        if len(text) > MOST_TEXT:
            raise ValueError(f"chat: the template's text is too long; got {len(text)} characters; expected at most {MOST_TEXT}")
        return self._begun(text, messages[-1], guard) if continue_final_message else text

    @staticmethod
    def _begun(text, message, guard):
        """The text up to the end of what the last message says. ValueError where it says nothing that the text has."""
        content = message.get("content")
        content = guard(content).strip() if isinstance(content, str) else ""
        at = text.rfind(content) if content and message["role"] == "assistant" else -1
        if at < 0:
            raise ValueError(f"chat: the last message has no text that can go on; got one of {message['role']}; expected the assistant's, with a text that the template shows")
        return text[:at + len(content)]
