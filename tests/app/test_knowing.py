"""What the API says of a name: the kernel if it is idle, the notebook's own words if it is not, and nobody is woken."""

from e2e.api import Api, Notebook


def complete(api: Api, notebook: Notebook, source: str) -> dict[str, object]:
    answer = api.client.post(
        f"/api/v1/notebooks/{notebook.id}/complete", json={"source": source, "at": len(source)}, timeout=10
    )
    assert answer.status_code == 200, answer.text
    found: dict[str, object] = answer.json()
    return found


def names(answer: dict[str, object]) -> list[str]:
    items = answer["items"]
    assert isinstance(items, list)
    return [item["text"] for item in items]


def test_a_sleeping_notebook_answers_from_its_text_and_sleeps_on(api: Api) -> None:
    notebook = api.notebook(("python", "my_value = 1"))
    head = notebook.head()
    answer = complete(api, notebook, "my_v")
    assert (answer["known_by"], answer["why"]) == ("notebook", "asleep")
    assert names(answer) == ["my_value"]
    docs = api.client.post(f"/api/v1/notebooks/{notebook.id}/inspect", json={"source": "print", "at": 2}).json()
    assert docs == {"text": "", "known_by": "notebook", "why": "asleep"}
    assert notebook.head() == head
    assert notebook.view()["sandbox"]["state"] == "asleep"


def test_an_idle_kernel_answers_and_a_busy_one_does_not(api: Api) -> None:
    notebook = api.notebook(("python", "import math\nmade_by_code = exec('hidden_name = 7')"), ("python", "input()"))
    notebook.run(notebook.cells[0])
    cell = notebook.wait(notebook.cells[0])
    assert cell["state"] == "done", cell
    head = notebook.head()
    answer = complete(api, notebook, "hidden_n")
    assert (answer["known_by"], names(answer)) == ("kernel", ["hidden_name"])
    docs = api.client.post(f"/api/v1/notebooks/{notebook.id}/inspect", json={"source": "math.sqrt(", "at": 10}).json()
    assert "square root" in docs["text"]
    assert notebook.head() == head  # no frame tells of it
    notebook.run(notebook.cells[1])
    notebook.wait(notebook.cells[1], "waiting")
    answer = complete(api, notebook, "made_")
    assert (answer["known_by"], answer["why"], names(answer)) == ("notebook", "busy", ["made_by_code"])
    notebook.ask("stop")
    notebook.wait(notebook.cells[1], "cancelled")


def test_an_unknown_notebook_and_a_malformed_question_are_named(api: Api) -> None:
    notebook = api.notebook(("python", ""))
    asked = {"source": "x", "at": 1}
    assert api.client.post("/api/v1/notebooks/nonesuch/complete", json=asked).status_code == 404
    for body in ({"source": "x"}, {"source": "x", "at": -1}, {**asked, "more": 1}, {"source": None, "at": 1}):
        assert api.client.post(f"/api/v1/notebooks/{notebook.id}/inspect", json=body).status_code == 422
