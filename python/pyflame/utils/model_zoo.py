"""The old name of hub.load_state_dict_from_url."""
from ..hub import load_state_dict_from_url as load_url  # noqa: F401
from ..hub import _download_url_to_file  # noqa: F401
