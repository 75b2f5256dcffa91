// What is nicer with a script. Every page works without it.
"use strict";

(() => {
  // A button copies the text of the element that it names, and says so.
  const copy = async (button) => {
    const source = document.getElementById(button.dataset.copy);
    const text = source.textContent.trim();
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      // Without leave to write: select it, so that the person can.
      getSelection().selectAllChildren(source);
      button.textContent = "Press Ctrl+C";
    }
    setTimeout(() => (button.textContent = "Copy"), 2500);
  };

  // Boxes of a group are checked or cleared together.
  const checkAll = (button) => {
    const boxes = button.closest("fieldset").querySelectorAll("input[type=checkbox]");
    const on = [...boxes].some((box) => !box.checked);
    for (const box of boxes) box.checked = on;
    label(button);
  };

  const label = (button) => {
    const boxes = button.closest("fieldset").querySelectorAll("input[type=checkbox]");
    button.firstChild.textContent = [...boxes].every((box) => box.checked) ? "Clear" : "Select all";
  };

  // Buttons that do nothing without a script are hidden until there is one.
  const reveal = (root) => {
    for (const button of root.querySelectorAll("[data-copy], [data-check-all]")) {
      button.hidden = false;
      if ("checkAll" in button.dataset) label(button);
    }
  };

  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-copy], [data-check-all]");
    if (!button) return;
    if ("copy" in button.dataset) copy(button);
    else checkAll(button);
  });

  document.addEventListener("change", (event) => {
    const button = event.target.closest("fieldset")?.querySelector("[data-check-all]");
    if (button) label(button);
  });

  // A form that changes something is sent once, however often its button is pressed.
  document.addEventListener("submit", (event) => {
    if (event.submitter?.formMethod === "get" || event.target.method !== "post") return;
    if (event.target.dataset.sent) event.preventDefault();
    event.target.dataset.sent = "yes";
  });
  // A page that comes back from the history may be sent again.
  addEventListener("pageshow", () => {
    for (const form of document.forms) delete form.dataset.sent;
  });

  document.addEventListener("htmx:afterSwap", (event) => reveal(event.target));
  reveal(document);
})();
