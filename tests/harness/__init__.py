"""Nothing is lost: real servers under kill -9, and what must hold afterwards, readable as a specification.

| room | what is there |
| --- | --- |
| `promises.py` | the invariants, as plain functions over what was found afterwards: the specification |
| `story.py` | what one seed asks for: cells, questions, turns, and when |
| `house.py` | the processes that are killed, frozen and started again |
| `viewers.py`, `people.py` | who looks on, and who answers: from outside, by HTTP, whoever is dead just now |
| `campaign.py` | some stories at once in one house, with its troubles drawn by the first seed |
| `broken.py` | the same in copies of the program with one promise broken: each must be found |

`python -m tests.harness 0-199` runs seeds; a failure names them, and the same command runs them again.
"""
