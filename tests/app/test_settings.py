"""The settings and the data folder: what is read, what is refused, and that all of it is documented."""

import re
from pathlib import Path

import pytest

from app import data, settings
from app.settings import Settings, SettingsError

README = Path(__file__).parents[2] / "README.md"
NAMES = [f"NIGHTBOOK_{name.upper()}" for name in Settings.model_fields]


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)


def test_every_setting_is_documented_and_nothing_else_is() -> None:
    table = re.findall(r"^\| `(NIGHTBOOK_\w+)` \|", README.read_text(), re.MULTILINE)
    assert sorted(table) == sorted(NAMES)


def test_the_documented_defaults_are_the_real_ones() -> None:
    rows = dict(re.findall(r"^\| `NIGHTBOOK_(\w+)` \| `([^`]*)` \|", README.read_text(), re.MULTILINE))
    for name, written in rows.items():
        given = Settings.model_validate({name.lower(): written})
        assert getattr(given, name.lower()) == getattr(Settings(), name.lower()), name


def test_the_environment_wins_and_an_empty_variable_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NIGHTBOOK_PORT", "9000")
    monkeypatch.setenv("NIGHTBOOK_HOST", "")
    monkeypatch.setenv("NIGHTBOOK_TRUSTED_PROXIES", " 10.0.0.0/8, 192.168.1.7 ,")
    found = settings.load()
    assert (found.port, found.host) == (9000, "127.0.0.1")
    assert found.trusted_proxies == ("10.0.0.0/8", "192.168.1.7/32")


@pytest.mark.parametrize(
    ("text", "size"),
    [("65536", 65536), ("64KiB", 65536), ("16MiB", 2**24), ("16 mib", 2**24), ("0.5GiB", 2**29), ("2GB", 2 * 10**9)],
)
def test_sizes_are_read_with_units(monkeypatch: pytest.MonkeyPatch, text: str, size: int) -> None:
    monkeypatch.setenv("NIGHTBOOK_BUFFER_TOTAL_BYTES", "100GiB")
    monkeypatch.setenv("NIGHTBOOK_BUFFER_BYTES", text)
    assert settings.load().buffer_bytes == size


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PORT", "abc"),
        ("PORT", "65536"),
        ("PORT", "-1"),
        ("BUFFER_BYTES", "16 parsec"),
        ("BUFFER_BYTES", "MiB"),
        ("BUFFER_BYTES", "12"),
        ("BUFFER_BYTES", "infGiB"),
        ("BUFFER_FRAMES", "0"),
        ("TURN_SECONDS", "0"),
        ("TURN_SECONDS", "nan"),
        ("TURN_SECONDS", "soon"),
        ("SANDBOX", "docker"),
        ("PUBLIC_URL", "nb.example.org"),
        ("PUBLIC_URL", "https://nb.example.org/sub"),
        ("PUBLIC_URL", "https://user@nb.example.org"),
        ("PUBLIC_URL", "https://nb.example.org:x"),
        ("TRUSTED_PROXIES", "the-proxy"),
        ("FETCH_ALLOW", "10.0.0.0/99"),
    ],
)
def test_a_bad_value_is_one_line_that_names_it(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(f"NIGHTBOOK_{name}", value)
    with pytest.raises(SettingsError) as caught:
        settings.load()
    said = str(caught.value)
    assert said.startswith(f"NIGHTBOOK_{name}: expected ")
    assert repr(value) in said
    assert "\n" not in said


@pytest.mark.parametrize(
    ("name", "value"),
    [("TOKEN", "sesame"), ("TOKEN", "a token with some spaces"), ("DATABASE_URL", "mysql://root:sesame@db/x")],
)
def test_a_bad_secret_is_not_repeated(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(f"NIGHTBOOK_{name}", value)
    with pytest.raises(SettingsError) as caught:
        settings.load()
    assert str(caught.value).startswith(f"NIGHTBOOK_{name}: expected ")
    assert value not in str(caught.value)
    assert "sesame" not in str(caught.value)


def test_settings_do_not_show_their_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NIGHTBOOK_TOKEN", "open-sesame-open-sesame")
    monkeypatch.setenv("NIGHTBOOK_DATABASE_URL", "postgresql://u:sesame@db/x")
    assert "sesame" not in repr(settings.load())


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.7", "nb.example.org"])
def test_an_open_address_without_a_token_is_refused(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    monkeypatch.setenv("NIGHTBOOK_HOST", host)
    with pytest.raises(SettingsError, match=r"^NIGHTBOOK_TOKEN: expected to be set, as NIGHTBOOK_HOST="):
        settings.load()
    monkeypatch.setenv("NIGHTBOOK_TOKEN", "a-token-for-these-tests")
    assert settings.load().host == host


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost", "LocalHost"])
def test_a_loopback_address_needs_none(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    monkeypatch.setenv("NIGHTBOOK_HOST", host)
    assert settings.load().token is None


def test_one_buffer_is_not_larger_than_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NIGHTBOOK_BUFFER_BYTES", "1GiB")
    with pytest.raises(SettingsError, match=r"^NIGHTBOOK_BUFFER_TOTAL_BYTES: expected at least NIGHTBOOK_BUFFER_BYTES"):
        settings.load()


# The data folder


def test_a_new_data_folder_is_private_and_has_a_version(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "data"
    data.prepare_data(folder)
    data.prepare_data(folder)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "version").read_text() == "1\n"
    assert [path.name for path in folder.iterdir()] == ["version"]


def test_an_existing_folder_keeps_its_mode(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir(mode=0o755)
    data.prepare_data(folder)
    assert folder.stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize(("text", "said"), [("2\n", "is of version 2, this Nightbook knows 1"), ("x", "no version")])
def test_a_folder_of_another_version_is_refused_and_not_touched(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "version").write_text(text)
    with pytest.raises(data.DataError, match=said):
        data.prepare_data(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["version"]
    assert (tmp_path / "version").read_text() == text


@pytest.mark.parametrize("place", ["/proc/nightbook", "/dev/null/nightbook"])
def test_a_folder_that_cannot_be_written_is_told_in_one_line(place: str) -> None:
    with pytest.raises(data.DataError) as caught:
        data.prepare_data(Path(place))
    assert place in str(caught.value)
    assert "NIGHTBOOK_DATA" in str(caught.value)
    assert "\n" not in str(caught.value)
