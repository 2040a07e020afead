"""Names of torch.hub. Weights can be fetched; programs of strangers are not run."""
import os
import re
from urllib.parse import urlparse

from . import _refused

_ADVICE = "it would run a program from the network; install the package that defines the model, and load its weights with pyflame.load"
load, list, help = (_refused.function(f"hub.{name}", _ADVICE) for name in ("load", "list", "help"))
HASH_REGEX = re.compile(r"-([a-f0-9]*)\.")  # in the name of a file: the first digits of its SHA-256
_folder = None


def get_dir():
    """The folder that fetched files are kept in, a str: that of set_dir(), otherwise $TORCH_HOME/hub, $XDG_CACHE_HOME/pyflame/hub, or ~/.cache/pyflame/hub.
    """
    if _folder:
        return _folder
    home = os.environ.get("TORCH_HOME")
    return os.path.join(home, "hub") if home else os.path.join(os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")), "pyflame", "hub")


def set_dir(d):
    """Sets the folder that fetched files are kept in from now on. d: a path, in which ~ is the home folder. It need not exist. TypeError for what is no path."""
    global _folder
    _folder = os.path.expanduser(d)


def download_url_to_file(url, dst, hash_prefix=None, progress=True):
    """Fetches a URL to a file, which appears when it is complete. ValueError if the SHA-256 of the data does not begin with hash_prefix.

    url: whatever urllib opens. dst: the path of the file. progress is accepted for PyTorch's programs and changes nothing."""
    import hashlib
    import urllib.request

    part, digest = f"{dst}.part", hashlib.sha256()
    try:
        with urllib.request.urlopen(url) as source, open(part, "wb") as file:
            while data := source.read(1 << 20):
                file.write(data)
                digest.update(data)
        if hash_prefix is not None and not digest.hexdigest().startswith(hash_prefix):
            raise ValueError(f"download_url_to_file: the data is not what was expected; got SHA-256 {digest.hexdigest()}; expected {hash_prefix}...")
        os.replace(part, dst)
    finally:
        if os.path.exists(part):
            os.remove(part)


_download_url_to_file = download_url_to_file


def load_state_dict_from_url(url, model_dir=None, map_location=None, progress=True, check_hash=False, file_name=None, weights_only=True):
    """The file of weights at a URL, by pyflame.load; it is fetched once. check_hash: the name ends with the first digits of its SHA-256.

    url: its last part is the name of the file unless file_name is given. model_dir: the folder in which the file is kept; get_dir() + '/checkpoints' unless given. map_location,
    weights_only: as in pyflame.load. progress is accepted for PyTorch's programs and changes nothing. A file of that name in the folder is taken as it is.

    ValueError for what is no URL, for a file of no known format, and with check_hash for other data; urllib's URLError, an OSError, where the file cannot be
    fetched."""
    from .io import load as load_file

    folder = model_dir or os.path.join(get_dir(), "checkpoints")
    os.makedirs(folder, exist_ok=True)
    name = file_name or os.path.basename(urlparse(url).path)
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        found = re.search(r"-([a-f0-9]+)\.", name) if check_hash else None
        download_url_to_file(url, path, found.group(1) if found else None, progress)
    return load_file(path, map_location=map_location, weights_only=weights_only)
