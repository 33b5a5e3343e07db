// The tour: a real notebook that teaches the promise by doing. Plain cells, to be changed and run like any others.

export const TOUR = {
  title: "A tour of Nightbook",
  cells: [
    {
      kind: "markdown",
      source: `# Work that keeps going

What you start here runs on the server, not in this tab. Try it in a few minutes: go down the page and do what it says.

## 1. Start this, then leave

Press **▶** beside the cell below. It counts for a minute. Then **close this tab**, or turn off the network, or pick up your phone and open Nightbook there.`,
    },
    {
      kind: "python",
      source: `import time

for second in range(1, 61):
    print(f"second {second} of 60, whoever looks on")
    time.sleep(1)`,
    },
    {
      kind: "markdown",
      source: `## 2. Come back

Open Nightbook again, now or in an hour: the notebook is in the list with its state. The count went on without you. If you were away for more than a minute, a strip above says for how long and what happened, and the timeline shows where you left.

## 3. A question waits for you

Programs may ask. Run this, leave before you answer, and come back: it waits, for as long as it takes. The list of notebooks and the title of the tab say so.`,
    },
    {
      kind: "python",
      source: `name = input("What shall the next cell call you? ")
print(f"Good evening, {name}.")`,
    },
    {
      kind: "markdown",
      source: `## 4. Stopping is a command

Leaving never stops anything; **■** does. This one would run all night.`,
    },
    {
      kind: "python",
      source: `beats = 0
while True:
    beats += 1
    print(f"\\rstill here, {beats}", end="")
    time.sleep(0.5)`,
    },
    {
      kind: "markdown",
      source: `## 5. Silence means no

An agent asks before it acts. This one needs no key: it carries out a runbook, whose prose is said and whose blocks are done, one after the other. Ticking the checklist needs no yes; writing a file does.

Run it, read the card, and **do not answer**. Go to the list of notebooks for a minute or two: with nobody there to ask, it denies itself, and nothing is written. Back here, **Approve and go on** writes the file after all, and it appears under Files.`,
    },
    {
      kind: "agent",
      source: `First what needs no yes.

\`\`\`check Read what the agent wants to do
\`\`\`

Then a file, so that you see a question. It waits for your yes, and silence means no.

\`\`\`write hello.txt
Written with a person's yes.
\`\`\`

\`\`\`deliver hello.txt
The file is there because you said yes.
\`\`\``,
    },
    {
      kind: "markdown",
      source: `## 6. What stays

Variables stay, too: run the next cell after the ones of steps 3 and 4. Then make the notebook your own, or put it in the archive with **⋯** above.`,
    },
    { kind: "python", source: `f"{name} stopped it after {beats} beats"` },
  ],
};
