"""The old name of hub.load_state_dict_from_url."""
from .. import hub as _hub
from ..hub import _download_url_to_file as _download_url_to_file

load_url = _hub.load_state_dict_from_url
