"""Settings that change while a program runs: what shows is durable, and a user's file stays the user's."""

from __future__ import annotations

import attrs
import pytest

from understudy.runtime.disk import RealDisk
from understudy.runtime.properties import ConfigError, parse_properties
from understudy.runtime.stored_settings import BlackListedError, NotStoredError, SettingsInForce, StoredSettings


@attrs.frozen
class Example:
    config_store_path: str = ""
    config_black_list: str = "secretKey"
    secret_key: str = ""
    label: str = ""
    count: int = 3


FILE = b"# kept\nlabel = old\nunknownKey=1\n"


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "example.conf"
    path.write_bytes(FILE)
    return path


@pytest.fixture
def settings(path):
    return StoredSettings(SettingsInForce(Example(str(path), label="old"), frozenset({"configStorePath"})), RealDisk())


async def test_a_change_is_written_in_place_and_read_back_as_it_was(settings, path) -> None:
    # when a value with characters that mean something in a property file is set
    value = "C:\\logs\\x = \u00e9"
    await settings.update({"label": value, "count": "4", "nobodysKey": "x"})
    # then it shows, the comment and what was not changed stay, and the next start reads the same
    assert (settings.live.current.label, settings.live.current.count) == (value, 4)
    assert path.read_bytes().startswith(b"# kept\nlabel=C:")
    assert parse_properties(path.read_text()) == {"label": value, "unknownKey": "1", "count": "4"}


async def test_what_changes_nothing_writes_nothing(settings, path) -> None:
    path.unlink()
    await settings.update({"label": "old", "nobodysKey": "x"})
    assert not path.exists()


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"label": "new", "secretKey": "x"}, BlackListedError),
        ({"label": "new", "configStorePath": "/etc/passwd"}, BlackListedError),
        ({"label": "new", "count": "many"}, ConfigError),
    ],
)
async def test_a_refused_change_changes_nothing(settings, path, values, error) -> None:
    with pytest.raises(error):
        await settings.update(values)
    assert settings.live.current.label == "old"
    assert path.read_bytes() == FILE


async def test_values_that_do_not_fit_together_and_files_that_cannot_be_written_change_nothing(path) -> None:
    def check(example: Example) -> None:
        if example.count > 9:
            raise ConfigError("count is above 9")

    fussy = StoredSettings(SettingsInForce(Example(str(path)), frozenset(), check), RealDisk())
    with pytest.raises(ConfigError, match="above 9"):
        await fussy.update({"count": "10"})
    # a file where the folder should be
    lost = StoredSettings(SettingsInForce(Example(str(path / "below" / "file")), frozenset()), RealDisk())
    with pytest.raises(NotStoredError, match=r"cannot write .*below/file: .*; nothing was changed"):
        await lost.update({"count": "5"})
    assert isinstance(fussy.live, SettingsInForce) and isinstance(lost.live, SettingsInForce)
    assert (fussy.live.current.count, lost.live.current.count, path.read_bytes()) == (3, 3, FILE)
