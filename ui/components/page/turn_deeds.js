// What a person can do with turns, their questions, their files and the checklist; the rows, the head and the rail call these.

// `nb` is the notebook component.
export function turnDeeds(nb) {
  const send = (kind, fields) => nb.commands.send(kind, fields);
  const calm = () => matchMedia("(prefers-reduced-motion: reduce)").matches;
  const center = (node) => node?.scrollIntoView({ block: "center", behavior: calm() ? "auto" : "smooth" });
  const showAsk = (ask) => {
    const card = document.querySelector(`[data-ask-id="${CSS.escape(ask)}"]`);
    const cell = nb.asks.find((item) => item.ask === ask)?.cell;
    center(card ?? nb.cells.get(cell)?.view?.$el);
    card?.focus({ preventScroll: true });
  };
  return {
    // To a turn: while it runs, for its next round; afterwards it goes on.
    tell: (cell, text) => {
      const answers = cell.story.waits_for === "answer";
      const command = send(answers ? "answer_turn" : "follow_up", { cell_id: cell.id, text });
      nb.said.set(command, { cell, text });
    },
    // A turn that ended at a step goes on there.
    goOn: (cell) => send("go_on", { cell_id: cell.id }),
    withdraw: (message) => send("withdraw", { message }),
    policy: (policy) => send("set_policy", { policy }),
    model: () => nb.model,
    chooseModel: (model) => send("set_model", { model }),
    removeRule: (rule) => send("remove_rule", { rule }),
    addServer: (server, where) => send("add_server", { server, ...where }),
    removeServer: (server) => send("remove_server", { server }),
    lookAtServer: (server) => send("look_at_server", { server }),
    check: (item, done) => send("check", { item, done }),

    // Whether the card of an ask can be seen.
    seen: (ask, seen) => {
      if (seen) nb.onScreen.add(ask);
      else nb.onScreen.delete(ask);
    },
    showAsk,
    showWaiting: () => {
      const [first] = nb.asks;
      if (first) return showAsk(first.ask);
      const cells = nb.order.map((id) => nb.cells.get(id));
      center(cells.find((cell) => cell.state === "waiting" || cell.story.waits_for === "answer")?.view?.$el);
    },

    files: () => nb.files,
    filesOf: (callId) => nb.filesByCall.get(callId) ?? [],
    // The address of a file, or of one version of it.
    file: ({ path, version }) => {
      const name = path.split("/").map(encodeURIComponent).join("/");
      return `/api/v1/notebooks/${encodeURIComponent(nb.notebook)}/files/${name}${version ? `?version=${version}` : ""}`;
    },
  };
}
