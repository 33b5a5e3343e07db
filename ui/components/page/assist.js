// What the kernel knows, at the caret: a list of names to choose from, or what is written about one. Asked for by Tab,
// Ctrl+Space or a point behind a name, and by Shift+Tab; an answer that comes too late for the text is dropped.

const MOST = 200; // names in the list; typing on narrows it
const SIGNS = { function: "ƒ", variable: "x", attribute: "·", class: "C", module: "M", instance: "x", keyword: "k", magic: "%", path: "/", param: "=" };

// `host` gives complete(text, at) -> {from, to, items: [{text, type}], static} and inspect(text, at) -> {text}; positions are
// UTF-16 units. Returns the extensions, and `key(event, view)`, true when the key was for the list.
export function assistant(CM, host) {
  const set = CM.StateEffect.define();
  const field = CM.StateField.define({
    create: () => null,
    update(value, transaction) {
      for (const effect of transaction.effects) if (effect.is(set)) return effect.value;
      if (!value || (!transaction.docChanged && !transaction.selection)) return value;
      if (value.docs !== undefined) return null;
      return narrowed(value, transaction.state);
    },
    provide: (own) => CM.showTooltip.from(own, (value) => value && { pos: value.from, above: value.docs !== undefined, create }),
  });
  let asked = 0;

  function narrowed(value, state) {
    const { head, empty } = state.selection.main;
    if (!empty || head < value.from || head > state.doc.length) return null;
    const prefix = state.sliceDoc(value.from, head);
    if (/[^\p{L}\p{N}_%]/u.test(prefix) && !value.all.some((item) => item.text.startsWith(prefix))) return null;
    const lower = prefix.toLowerCase();
    const fits = value.all.filter((item) => item.text.toLowerCase().startsWith(lower));
    fits.sort((one, other) => other.text.startsWith(prefix) - one.text.startsWith(prefix)); // stable: own order within
    if (!fits.length || (fits.length === 1 && fits[0].text === prefix)) return null;
    const items = fits.slice(0, MOST);
    const before = value.items?.[value.chosen]?.text;
    return { ...value, to: head, items, chosen: Math.max(0, value.moved ? items.findIndex((item) => item.text === before) : 0) };
  }

  function create(view) {
    const dom = document.createElement("div");
    const draw = () => {
      const value = view.state.field(field);
      if (!value) return;
      if (value.docs !== undefined) {
        dom.className = "assist docs";
        dom.setAttribute("role", "note");
        if (dom.textContent !== value.docs) dom.textContent = value.docs;
        return;
      }
      dom.className = "assist";
      dom.id = "nb-assist";
      dom.setAttribute("role", "listbox");
      dom.setAttribute("aria-label", "Completions");
      dom.replaceChildren(...value.items.map((item, at) => option(item, at, at === value.chosen)));
      if (value.static) {
        const note = document.createElement("div");
        note.className = "assist-note";
        note.textContent = value.static;
        dom.append(note);
      }
      dom.querySelector("[aria-selected=true]")?.scrollIntoView({ block: "nearest" });
    };
    const option = (item, at, chosen) => {
      const node = document.createElement("div");
      node.id = `nb-assist-${at}`;
      node.setAttribute("role", "option");
      node.setAttribute("aria-selected", String(chosen));
      const sign = document.createElement("i");
      sign.textContent = SIGNS[item.type] ?? "·";
      sign.title = item.type;
      node.append(sign, item.text);
      node.onmousedown = (event) => {
        event.preventDefault(); // the caret stays where it is
        accept(view, at);
      };
      return node;
    };
    draw();
    return { dom, update: draw };
  }

  const close = (view) => view.dispatch({ effects: set.of(null) });

  function accept(view, at) {
    const value = view.state.field(field);
    const insert = value.items[at].text;
    view.dispatch({
      changes: { from: value.from, to: view.state.selection.main.head, insert },
      selection: { anchor: value.from + insert.length },
      effects: set.of(null),
      userEvent: "input.complete",
      scrollIntoView: true,
    });
  }

  async function ask(view, kind) {
    const number = (asked += 1);
    const { doc, selection } = view.state;
    const at = selection.main.head;
    const answer = await host[kind](doc.toString(), at).catch(() => null);
    if (number !== asked || !answer || !view.dom.isConnected || !view.hasFocus) return;
    if (kind === "inspect") {
      if (view.state.doc !== doc) return;
      view.dispatch({ effects: set.of({ from: at, docs: answer.text || "Nothing is known about this." }) });
      return;
    }
    const value = { from: answer.from, all: answer.items, static: answer.static, chosen: 0, moved: false };
    if (view.state.doc.sliceString(0, at) !== doc.sliceString(0, at)) return;
    const list = narrowed(value, view.state);
    view.dispatch({ effects: set.of(list) });
    if (list?.items.length === 1 && view.state.doc === doc && answer.sure) accept(view, 0);
  }

  function key(event, view) {
    const value = view.state.field(field, false);
    if (event.isComposing || event.keyCode === 229) return false;
    const plain = !event.ctrlKey && !event.altKey && !event.metaKey;
    if (event.key === " " && event.ctrlKey && !event.altKey && !event.metaKey) {
      ask(view, "complete");
      return true;
    }
    if (value && event.key === "Escape") {
      close(view);
      return true;
    }
    if (value?.items && plain && !event.shiftKey) {
      const count = value.items.length;
      const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 8, PageUp: -8 }[event.key];
      if (step) {
        const edge = Math.abs(step) > 1 ? Math.max(0, Math.min(count - 1, value.chosen + step)) : (value.chosen + step + count) % count;
        view.dispatch({ effects: set.of({ ...value, chosen: edge, moved: true }) });
        return true;
      }
      if (event.key === "Enter" || event.key === "Tab") {
        accept(view, value.chosen);
        return true;
      }
    }
    if (event.key !== "Tab" || !plain || !host.knows()) return false;
    const { main, ranges } = view.state.selection;
    const before = view.state.sliceDoc(view.state.doc.lineAt(main.head).from, main.head);
    if (ranges.length > 1 || !main.empty || !before.trim()) return false; // Tab and Shift+Tab indent
    if (!event.shiftKey && !/[\p{L}\p{N}_.%'"/]$/u.test(before)) return false;
    ask(view, event.shiftKey ? "inspect" : "complete");
    return true;
  }

  const offered = CM.EditorView.updateListener.of((update) => {
    if (!update.docChanged || !host.knows()) return;
    if (!update.transactions.some((transaction) => transaction.isUserEvent("input.type"))) return;
    const { head } = update.state.selection.main;
    if (/[\p{L}_)\]'"][\p{L}\p{N}_)\]'"]*\.$/u.test(update.state.sliceDoc(Math.max(0, head - 80), head))) ask(update.view, "complete");
  });
  const names = CM.EditorView.contentAttributes.compute([field], (state) => {
    const value = state.field(field);
    return value?.items ? { "aria-controls": "nb-assist", "aria-activedescendant": `nb-assist-${value.chosen}` } : {};
  });
  const left = CM.EditorView.domEventHandlers({
    blur: (_, view) => {
      asked += 1;
      if (view.state.field(field)) setTimeout(() => view.dom.isConnected && close(view));
    },
  });
  return { extensions: [field, offered, names, left], key, open: (view) => Boolean(view.state.field(field, false)) };
}
