// Progressive enhancements. Every page works without this script.
"use strict";

(() => {
  // Removes a field from the address: a reload, the history and a shared link are without it.
  const forget = (name) => {
    const address = new URL(location.href);
    if (!address.searchParams.has(name)) return;
    address.searchParams.delete(name);
    history.replaceState(history.state, "", address);
  };

  // A notice is about what has just happened: a reload does not show it again.
  forget("notice");

  const isApple = /Mac|iPhone|iPad/.test(navigator.platform);

  // Says something to a screen reader.
  const spoken = document.createElement("p");
  const speak = (text) => {
    spoken.textContent = text;
    setTimeout(() => (spoken.textContent = ""), 2500);
  };

  // Copies the text of the element named by the button's data-copy attribute, and says so for a moment.
  const labels = new WeakMap();
  const copy = async (button) => {
    if (!labels.has(button)) labels.set(button, [...button.childNodes]);
    const source = document.getElementById(button.dataset.copy);
    const text = source.textContent.trim();
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      // Without clipboard permission, select the text so that the user can copy it.
      getSelection().selectAllChildren(source);
      button.textContent = isApple ? "Press ⌘C" : "Press Ctrl+C";
    }
    speak(button.textContent);
    setTimeout(() => button.replaceChildren(...labels.get(button)), 2500);
  };

  // The boxes of a group, without those that its filter hides: nobody selects what is not in sight.
  const visibleBoxes = (button) =>
    [...button.closest("fieldset").querySelectorAll("input[type=checkbox]")].filter((box) => !box.closest("label[hidden]"));

  // Checks or clears all visible boxes of a group.
  const checkAll = (button) => {
    const boxes = visibleBoxes(button);
    const on = boxes.some((box) => !box.checked);
    for (const box of boxes) box.checked = on;
    label(button);
  };

  const label = (button) => {
    const boxes = visibleBoxes(button);
    const isClear = boxes.length > 0 && boxes.every((box) => box.checked);
    button.firstChild.textContent = isClear ? "Clear" : "Select all";
  };

  // Copies the text beside the button, and says so.
  const copyId = async (button) => {
    try {
      await navigator.clipboard.writeText(button.previousElementSibling.textContent);
      speak("Copied");
      button.classList.add("done");
      setTimeout(() => button.classList.remove("done"), 1500);
    } catch {
      // Without clipboard permission, select the text so that the user can copy it.
      getSelection().selectAllChildren(button.previousElementSibling);
    }
  };

  // Adds a button to an ID. In the rows of a table only a pointer reaches it: the page of the object has it too, and a table would
  // have twice as many stops of the keyboard.
  const addCopyButton = (id) => {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.dataset.copyId = "";
    button.title = "Copy";
    button.setAttribute("aria-label", `Copy ${id.textContent}`);
    if (id.closest("td, th")) button.tabIndex = -1;
    button.append(document.getElementById("copy-icons").content.cloneNode(true));
    id.after(button);
  };

  // Shows buttons that work only with this script, and adds the reader's local time to exact times.
  const reveal = (root) => {
    for (const time of root.querySelectorAll("time:not([data-local])")) {
      time.dataset.local = "";
      time.title += `\n${new Date(time.dateTime).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "long" })}`;
    }
    for (const id of root.querySelectorAll("code[data-id]:not(:has(+ .copy))")) addCopyButton(id);
    for (const control of root.querySelectorAll("[data-copy], [data-check-all], [data-filter], [data-live]")) {
      control.hidden = false;
      if ("checkAll" in control.dataset) label(control);
    }
  };

  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-copy], [data-copy-id], [data-check-all]");
    if (!button) return;
    if ("copy" in button.dataset) copy(button);
    else if ("copyId" in button.dataset) copyId(button);
    else checkAll(button);
  });

  // Shows only the boxes of the group whose labels contain the text. Checked boxes stay visible.
  document.addEventListener("input", (event) => {
    if (!("filter" in event.target.dataset)) return;
    const text = event.target.value.trim().toLowerCase();
    const group = event.target.closest("fieldset");
    for (const box of group.querySelectorAll("label:has(input[type=checkbox])")) {
      const isMatch = box.textContent.toLowerCase().includes(text);
      box.hidden = !isMatch && !box.querySelector("input").checked;
    }
    const button = group.querySelector("[data-check-all]");
    if (button) label(button);
  });
  document.addEventListener("keydown", (event) => {
    // Enter in a filter does not submit the form.
    if (event.key === "Enter" && "filter" in (event.target.dataset ?? {})) event.preventDefault();
  });

  document.addEventListener("change", (event) => {
    const button = event.target.closest("fieldset")?.querySelector("[data-check-all]");
    if (button) label(button);
    // A date applies only to the time range "Custom".
    const range = ["date", "datetime-local"].includes(event.target.type) ? event.target.form?.elements.range : null;
    if (range) range.value = "custom";
  });

  // The buttons for all selected rows wait for the first one, and a text beside them says how many are selected.
  const countSelected = () => {
    for (const status of document.querySelectorAll("[data-selected]")) {
      const { form } = status.closest("fieldset");
      const count = form.querySelectorAll(".pick input:checked").length;
      const text = `${count} selected`;
      if (status.textContent !== text) status.textContent = text;
      for (const button of form.querySelectorAll("button[name=act]")) button.disabled = count === 0;
    }
  };
  for (const event of ["change", "click", "htmx:afterSwap"]) document.addEventListener(event, countSelected);
  addEventListener("pageshow", countSelected);

  // A click on a time in a row follows the link of the row, which is below the time so that its exact value shows on hover.
  document.addEventListener("click", (event) => {
    if (event.target.closest("tbody time") && !event.target.closest("a")) event.target.closest("tr").querySelector("th > a")?.click();
  });

  // A list does not search for what may be a full key while the user types: it would get into a URL. The button submits it. Nor
  // does the beginning of it stay in the address.
  document.addEventListener("htmx:beforeRequest", (event) => {
    const { target } = event;
    if (target.name === "q" && event.detail.requestConfig.verb === "get" && /^[!-?A-~]{20,}$/.test(target.value.trim())) {
      event.preventDefault();
      forget("q");
      tellAbove(event.detail.target, "hint", "Press Enter to search.");
    }
  });

  // An error of a form replaces the page, as if the browser had sent the form. An answer without the part that it should replace is
  // another page, such as that to sign in: the session has ended.
  document.addEventListener("htmx:beforeSwap", (event) => {
    const { detail } = event;
    const { elt } = detail.requestConfig;
    const part = elt.getAttribute("hx-select");
    if (detail.isError && !(elt instanceof HTMLFormElement)) {
      tellOutdated(detail.target);
    } else if (detail.isError) {
      // A proxy's own page has no such part.
      if (!detail.serverResponse.includes('id="main"')) return tellNoAnswer(elt);
      Object.assign(detail, { shouldSwap: true, target: document.getElementById("main"), selectOverride: "#main", swapOverride: "outerHTML" });
    } else if (detail.shouldSwap && part && !detail.serverResponse.includes(`id="${part.slice(1)}"`)) {
      detail.shouldSwap = false;
      location.reload();
    }
  });

  // A form without an answer is not sent again: it may have had its effect.
  document.addEventListener("htmx:sendError", (event) => {
    if (event.detail.elt instanceof HTMLFormElement) tellNoAnswer(event.detail.elt);
    else tellOutdated(event.detail.target);
  });
  function tellOutdated(part) {
    tellAbove(part, "error", "Could not refresh. What is shown may be out of date.");
  }
  // Says something at the top of a part of the page, until the next answer replaces it.
  function tellAbove(part, kind, text) {
    const told = part.querySelector(":scope > .told-above");
    if (told?.textContent === text) return;
    told?.remove();
    const line = document.createElement("p");
    line.className = `${kind} told-above`;
    if (kind === "error") line.setAttribute("role", "alert");
    line.textContent = text;
    part.prepend(line);
  }
  function tellNoAnswer(form) {
    delete form.dataset.sent;
    form.querySelector(":scope > .no-answer")?.remove();
    const error = document.createElement("p");
    error.className = "error no-answer";
    error.setAttribute("role", "alert");
    error.textContent = "The server did not respond. The request may have taken effect: check before you send it again.";
    form.prepend(error);
  }

  // Submits a POST form only once, even if its button is pressed repeatedly. A field named "method" hides the property of the form.
  document.addEventListener("submit", (event) => {
    if (event.submitter?.formMethod === "get" || event.target.getAttribute("method") !== "post") return;
    if (event.target.dataset.sent) event.preventDefault();
    event.target.dataset.sent = "yes";
  });
  addEventListener("pageshow", (event) => {
    // A page restored from the history may be submitted again.
    for (const form of document.forms) delete form.dataset.sent;
    // A secret is shown once, also if the browser has kept the page in memory.
    if (event.persisted && document.querySelector("[data-shown-once]")) location.reload();
  });

  // The command palette: the search page in a dialog. It searches while the user types.
  const finders = document.querySelectorAll("[data-find]");
  let palette;
  let isFresh = true;

  const loadPalette = async () => {
    const reply = await fetch(finders[0].href);
    const page = new DOMParser().parseFromString(await reply.text(), "text/html");
    const finder = page.getElementById("finder");
    if (!finder) throw new Error("the answer is no search page");
    const field = finder.querySelector("#find");
    const live = {
      "hx-post": `${finder.querySelector("form").getAttribute("action")}/live`, "hx-include": "closest form", "hx-select": "#found",
      "hx-target": "#found", "hx-trigger": "input changed delay:150ms", "hx-swap": "outerHTML", "hx-sync": "this:replace",
    };
    for (const [name, value] of Object.entries(live)) field.setAttribute(name, value);
    palette = document.createElement("dialog");
    palette.className = "palette";
    palette.setAttribute("aria-label", "Search");
    palette.append(finder);
    document.body.append(palette);
    htmx.process(palette);
    field.addEventListener("input", () => (isFresh = false));
    palette.addEventListener("keydown", moveInPalette);
    palette.addEventListener("click", (event) => event.target === palette && palette.close());
  };

  const openPalette = async () => {
    if (document.querySelector("main #find")) return document.getElementById("find").focus();
    try {
      if (!palette) await loadPalette();
    } catch {
      // The page itself says what is wrong.
      location.href = finders[0].href;
      return;
    }
    document.getElementById("side")?.hidePopover?.();
    if (!palette.open) palette.showModal();
    palette.querySelector("#find").select();
  };

  // Arrows move between the field and the results. Enter in the field follows the first result of what is in it.
  const moveInPalette = (event) => {
    const field = palette.querySelector("#find");
    const stops = [field, ...palette.querySelectorAll("#found a")];
    const at = stops.indexOf(document.activeElement);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1 }[event.key];
    if (to !== undefined) {
      event.preventDefault();
      stops[(to + stops.length) % stops.length].focus();
    } else if (event.key === "Enter" && event.target === field && isFresh && stops.length > 1) {
      event.preventDefault();
      stops[1].click();
    }
  };

  if (finders.length) {
    for (const hint of document.querySelectorAll(".find kbd")) {
      hint.hidden = false;
      if (isApple) hint.textContent = "⌘K";
    }
    document.addEventListener("click", (event) => {
      if (!event.target.closest("[data-find]") || event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      openPalette();
    });
    document.addEventListener("keydown", (event) => {
      const isShortcut = (event.ctrlKey || event.metaKey) && !event.altKey && event.key.toLowerCase() === "k";
      const isTyping = event.target.closest("input, textarea, select");
      if (!isShortcut && (event.key !== "/" || isTyping || event.ctrlKey || event.metaKey || event.altKey)) return;
      event.preventDefault();
      openPalette();
    });
  }

  document.addEventListener("htmx:afterSwap", (event) => {
    reveal(event.target);
    if (palette?.contains(event.detail.elt)) isFresh = true;
  });
  spoken.className = "hidden";
  spoken.setAttribute("aria-live", "polite");
  document.querySelector("main").append(spoken);
  reveal(document);
})();
