"""Folders that are replaced whole, whenever a process is killed."""

import sys

import pytest

from gym_text.errors import StoreError
from gym_text_policies.files.folders import replace_folder, restore_folders, whole_folders


class Killed(BaseException):
    """The process ends here."""


class Killer:
    """Ends the process before the next operation on files, once `left` of them are done."""

    EVENTS = ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "shutil.rmtree")

    def __init__(self):
        self.left = None
        sys.addaudithook(self.notice)

    def notice(self, event, arguments):
        if self.left is not None and (event in self.EVENTS or (event == "open" and arguments[1] == "w")):
            self.left -= 1
            if self.left < 0:
                raise Killed


@pytest.fixture(scope="module")
def killer():
    """Return a killer; it cannot be taken off again, but does nothing when its `left` is None."""
    return Killer()


def fill(folder, value):
    for name in ("weights", "record"):
        with open(folder / name, "w") as file:
            file.write(value)


def content(folder):
    return {path.name: path.read_text() for path in folder.iterdir()}


@pytest.mark.parametrize("again", [False, True])
def test_a_process_that_is_killed_at_any_moment_leaves_the_old_folder_or_the_new_one_whole(tmp_path, killer, again):
    killed, found = 0, []
    while True:
        folder = tmp_path / str(killed) / "best"
        folder.mkdir(parents=True)
        fill(folder, "old")
        killer.left = killed
        try:
            replace_folder(folder, lambda target: fill(target, "new"))
            break
        except Killed:
            killed += 1
        finally:
            killer.left = None
        if again:  # the next start writes the folder at once, and is killed as well
            killer.left = 3
            with pytest.raises(Killed):
                replace_folder(folder, lambda target: fill(target, "newer"))
            killer.left = None
        restore_folders(folder.parent)
        found.append(content(folder))
        assert found[-1] in ({"weights": value, "record": value} for value in ("old", "new"))
        assert whole_folders(folder.parent, "best*") == [folder]
    assert killed > 8 and {one["weights"] for one in found} == {"old", "new"}
    assert [path.name for path in folder.parent.iterdir()] == ["best"], "nothing is left aside"


def test_a_folder_that_cannot_be_written_leaves_the_old_one(tmp_path):
    (tmp_path / "best").mkdir()
    (tmp_path / "best/old").touch()

    def fails(folder):
        (folder / "new").touch()
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        replace_folder(tmp_path / "best", fails)
    assert content(tmp_path / "best") == {"old": ""} and [path.name for path in tmp_path.iterdir()] == ["best"]


def test_what_a_user_has_put_beside_a_folder_stays(tmp_path):
    for name in ("best", "best.old", "notes.replaced.txt"):
        (tmp_path / name).mkdir()
    replace_folder(tmp_path / "best", lambda target: fill(target, "new"))
    restore_folders(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"best", "best.old", "notes.replaced.txt"}


def test_a_file_in_the_way_is_one_sentence(tmp_path):
    (tmp_path / "run").write_text("")
    with pytest.raises(StoreError, match=r"A file stands there\. Name another folder"):
        replace_folder(tmp_path / "run" / "best", lambda target: fill(target, "new"))
