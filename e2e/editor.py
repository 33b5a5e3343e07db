"""The source of a cell as a test reads it and types into it: still text, or the editor once it is in hand.

`source` is always the one element of test id `cell-source` of a cell.
"""

from playwright.sync_api import Locator, expect

from e2e.waiting import until

READ = """async (node) => {
  if (node.matches("textarea")) return node.value;
  if (!node.classList.contains("cm-content")) return node.textContent;
  const { EditorView } = await import("nicegui-codemirror");
  return EditorView.findFromDOM(node).state.doc.toString();
}"""
# With a link the editor comes soon, in place of the text area; without one the text area stays.
PLACE = """async (node, [from, to]) => {
  await Promise.race([import("nicegui-codemirror"), new Promise((resolve) => setTimeout(resolve, 1000))]);
  node = document.activeElement;
  if (node.matches("textarea")) return node.setSelectionRange(from, to);
  const { EditorView } = await import("nicegui-codemirror");
  EditorView.findFromDOM(node).dispatch({ selection: { anchor: from, head: to } });
}"""
CARET = """async (node) => {
  if (node.matches("textarea")) return node.selectionStart;
  const { EditorView } = await import("nicegui-codemirror");
  return EditorView.findFromDOM(node).state.selection.main.head;
}"""


def text_of(source: Locator) -> str:
    """All of a cell's text, whether in sight or not."""
    text: str = source.evaluate(READ)
    return text


def expect_text(source: Locator, text: str, seconds: float = 10.0) -> None:
    """Waits until the text of the cell is `text`, to the letter."""
    seen = ""

    def same() -> bool:
        nonlocal seen
        seen = text_of(source)
        return seen == text

    try:
        until(same, "the text of the cell", seconds)
    except AssertionError:
        raise AssertionError(f"the source is {seen[:300]!r}, not {text[:300]!r}") from None


def take(source: Locator) -> None:
    """Takes the cell in hand: the caret is in its editor (a text area, as long as a bad link keeps the editor away)."""
    source.focus()
    expect(source).to_be_focused()
    expect(source).to_be_editable()


def place(source: Locator, at: int, to: int | None = None) -> None:
    """Puts the caret at UTF-16 unit `at`, or selects up to `to`."""
    take(source)
    source.evaluate(PLACE, [at, at if to is None else to])


def caret(source: Locator) -> int:
    """Where the caret is, in UTF-16 units."""
    at: int = source.evaluate(CARET)
    return at


def fill(source: Locator, text: str) -> None:
    """Replaces the text of the cell by `text`, as one who selects all and pastes."""
    take(source)
    source.press("Control+a")
    if text:
        source.page.keyboard.insert_text(text)
    else:
        source.press("Delete")
