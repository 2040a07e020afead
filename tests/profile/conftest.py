"""What the tests of `pyflame report` share."""
import json

import pytest


@pytest.fixture
def report(run):
    """report(path, *arguments): the document that the program prints."""

    def call(path, *args, **kwargs):
        return json.loads(run("report", path, "--json", *args, **kwargs).stdout)

    return call
