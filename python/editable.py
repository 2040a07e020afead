"""The build backend of `pip install -e python`: PyFlame from this clone, for work on it.

The wheel of the clone is built and unpacked into build/editable-*/, where links to the clone's Python files take the place of copies. What pip installs is
the name of that folder (pyflame.pth) and the `pyflame` program. An edited Python file counts at the next start of Python. A new file, and a change in C++,
need the command again. `pip install python` without -e installs the wheel."""
import base64
import hashlib
import os
import pathlib
import shutil
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
os.chdir(ROOT)  # the backend reads the pyproject.toml there

from scikit_build_core import build as backend  # noqa: E402

build_wheel = backend.build_wheel
get_requires_for_build_wheel = get_requires_for_build_editable = backend.get_requires_for_build_wheel
prepare_metadata_for_build_wheel = prepare_metadata_for_build_editable = backend.prepare_metadata_for_build_wheel


def unpack(wheel, folder):
    """The package of a wheel in a folder, with links to the clone's Python files."""
    for info in wheel.infolist():
        if info.filename.startswith("pyflame/"):
            path = pathlib.Path(wheel.extract(info, folder))
            path.chmod(info.external_attr >> 16 & 0o777 or 0o644)
    package = ROOT / "python" / "pyflame"
    for file in package.rglob("*"):
        if file.is_file() and "__pycache__" not in file.parts:
            link = folder / "pyflame" / file.relative_to(package)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.unlink(missing_ok=True)
            link.symlink_to(file)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    with tempfile.TemporaryDirectory() as temporary:
        name = backend.build_wheel(temporary, config_settings)
        folder = ROOT / "build" / f"editable-{name.split('-', 2)[2].removesuffix('.whl')}"
        shutil.rmtree(folder, ignore_errors=True)
        with zipfile.ZipFile(pathlib.Path(temporary) / name) as wheel, zipfile.ZipFile(pathlib.Path(wheel_directory) / name, "w", zipfile.ZIP_DEFLATED) as editable:
            unpack(wheel, folder)
            files = [(info, wheel.read(info)) for info in wheel.infolist() if not info.filename.startswith("pyflame/") and not info.is_dir()]
            record = next(info for info, _ in files if info.filename.endswith(".dist-info/RECORD"))
            lines = []
            for info, content in [*((i, c) for i, c in files if i is not record), (zipfile.ZipInfo("pyflame.pth"), f"{folder}\n".encode())]:
                editable.writestr(info, content)
                digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
                lines.append(f"{info.filename},sha256={digest},{len(content)}\n")
            editable.writestr(record, "".join(lines) + f"{record.filename},,\n")
    return name
