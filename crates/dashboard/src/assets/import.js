// Hashes the full keys of an import in the browser, so that only hashes and first characters are sent. Without this script,
// or without a secure context, the server hashes them.
"use strict";

(() => {
  const form = document.querySelector("form[data-import]");
  if (!form || !isSecureContext || !crypto.subtle) return;

  const KEY_CHARS_MAX = 512;
  const START_CHARS = 4;
  const FILE_BYTES_MAX = 2 * 1024 * 1024;
  const HASHED_AT_ONCE = 500;
  const fields = JSON.parse(form.dataset.fields);
  const isPrefixed = form.dataset.algorithm === "prefixed-api-key";
  const input = (name) => form.elements.namedItem(name);
  const [file, pasted, table] = [input("file"), input("keys"), input("table")];
  const panel = document.getElementById("columns");
  const faultText = document.getElementById("file-fault");
  // The rows of the chosen file; null if none is chosen, or if it cannot be read.
  let content = null;

  for (const note of form.querySelectorAll("[data-hashed]")) note.hidden = note.dataset.hashed !== "browser";

  const showFault = (text) => {
    faultText.textContent = text;
    faultText.hidden = !text;
  };

  const find = (text) => [",", ";", "\t"].find((delimiter) => text.split("\n", 1)[0].includes(delimiter)) ?? ",";

  // Parses CSV into rows: the line of each, and its cells.
  const parseCsv = (text) => {
    const delimiter = find(text);
    const rows = [];
    let [cells, cell, isQuoted, line, first] = [[], "", false, 1, 1];
    const endCell = () => {
      cells.push(cell.trim());
      cell = "";
    };
    const endRow = () => {
      endCell();
      if (cells.some((one) => one)) rows.push([first, cells]);
      cells = [];
    };
    for (let at = 0; at < text.length; at += 1) {
      const char = text[at];
      if (char === "\n") line += 1;
      if (isQuoted) {
        if (char !== '"') cell += char;
        else if (text[at + 1] === '"') {
          cell += char;
          at += 1;
        } else isQuoted = false;
      } else if (char === '"' && !cell) {
        isQuoted = true;
      } else if (char === delimiter) endCell();
      else if (char === "\n" || char === "\r") {
        endRow();
        if (char === "\r" && text[at + 1] === "\n") {
          at += 1;
          line += 1;
        }
        first = line;
      } else cell += char;
    }
    endRow();
    if (rows.length === 0) throw new Error("the file contains no keys");
    const [, columns] = rows.shift();
    return { columns, rows: rows.map(([number, row]) => [number, row.length === columns.length ? row : []]) };
  };

  const parseValue = (text) =>
    JSON.parse(text, (_, value) => {
      if (Number.isInteger(value) && !Number.isSafeInteger(value)) throw new RangeError("a number is too large");
      return value;
    });

  const parseJson = (text) => {
    let entries;
    try {
      entries = parseValue(text);
    } catch (error) {
      // One object per line.
      if (!text.startsWith("{") || error instanceof RangeError) throw error;
      entries = text.split("\n").filter((line) => line.trim()).map(parseValue);
    }
    if (!Array.isArray(entries)) {
      const chosenApi = input("other-api")?.value.trim() || input("api").value;
      const { keys, migrationId = form.dataset.import, apiId = chosenApi } = entries;
      if (keys === undefined) entries = [entries];
      else if (!Array.isArray(keys)) throw new Error("the field keys of the file must be a list");
      else if (migrationId !== form.dataset.import) throw new Error("the file has a different migrationId than this page");
      else if (apiId !== chosenApi) throw new Error("the file has a different apiId than this page");
      else entries = keys;
    }
    const columns = new Set();
    entries.forEach((entry, at) => {
      if (typeof entry !== "object" || entry === null || Array.isArray(entry)) {
        throw new Error(`entry ${at + 1} of the file must be an object`);
      }
      for (const name of Object.keys(entry)) columns.add(name);
    });
    const names = [...columns];
    return { columns: names, rows: entries.map((entry, at) => [at + 1, names.map((name) => entry[name] ?? null)]) };
  };

  const parse = (text) => {
    if (text.includes("\ufffd")) throw new Error("the file is not UTF-8 text; save it as CSV UTF-8 or as JSON");
    // Not tabs, which may separate empty cells.
    const trimmed = text.replace(/^\ufeff?[ \r\n]*/, "").replace(/[ \r\n]+$/, "");
    if (!trimmed) return null;
    try {
      return "[{".includes(trimmed[0]) ? parseJson(trimmed) : parseCsv(trimmed);
    } catch (error) {
      // The message of the browser may repeat a part of the file.
      throw error instanceof SyntaxError ? new Error("the file is not valid JSON") : error;
    }
  };

  // Recognizes each field once, as the server does.
  const recognize = (columns) => {
    const headings = columns.map((heading) => heading.toLowerCase().replace(/[^a-z0-9]/g, ""));
    const hasKeys = headings.some((heading) => heading !== "id" && fields.slice(0, 2).some((one) => one.headings.includes(heading)));
    const found = [];
    for (const heading of headings) {
      const name = fields.find((one) => one.headings.includes(heading))?.name ?? "";
      found.push(found.includes(name) || (heading === "id" && hasKeys) ? "" : name);
    }
    return found;
  };

  const selectFor = (heading, at, chosen) => {
    const label = Object.assign(document.createElement("label"), { htmlFor: `match-${at}`, textContent: heading || "Without a heading" });
    const select = Object.assign(document.createElement("select"), { id: `match-${at}` });
    select.add(new Option("Do not send", ""));
    for (const field of fields) select.add(new Option(field.label, field.name, false, field.name === chosen));
    const box = Object.assign(document.createElement("div"), { className: "field" });
    box.append(label, select);
    return box;
  };

  const showColumns = () => {
    panel.querySelector("div")?.remove();
    panel.hidden = !content;
    if (!content) return;
    const boxes = Object.assign(document.createElement("div"), { className: "import-columns" });
    const chosen = recognize(content.columns);
    boxes.append(...content.columns.map((heading, at) => selectFor(heading, at, chosen[at])));
    panel.append(boxes);
  };

  const read = async () => {
    content = null;
    showFault("");
    try {
      const upload = file.files[0];
      if (upload?.size > FILE_BYTES_MAX) throw new Error(`the file has ${upload.size} bytes; the maximum is ${FILE_BYTES_MAX}`);
      content = parse(upload ? await upload.text() : pasted.value);
    } catch (error) {
      showFault(error.message);
    }
    showColumns();
  };

  const toBase64 = (digest) => btoa(String.fromCharCode(...new Uint8Array(digest)));

  // Returns the hash of a key, or why it has none, and the characters that may be shown.
  const hashKey = async (key) => {
    if (typeof key !== "string" || !key) return [null, null];
    const chars = [...key];
    if (chars.length > KEY_CHARS_MAX) return [{ fault: "length" }, null];
    const parts = key.split("_");
    if (isPrefixed && parts.length < 3) return [{ fault: "format" }, null];
    const bytes = new TextEncoder().encode(isPrefixed ? parts.at(-1) : key);
    const start = !isPrefixed && chars.length >= 4 * START_CHARS ? chars.slice(0, START_CHARS).join("") : null;
    return [toBase64(await crypto.subtle.digest("SHA-256", bytes)), start];
  };

  // A value that is no hash may be a key, so it is not sent.
  const checkHash = (hash) =>
    hash === null || hash === "" || /^(?:[0-9a-fA-F]{64}|[A-Za-z0-9+/]{43}=)$/.test(hash) ? hash : { fault: "hash" };

  // Returns the chosen columns, with hashes instead of keys.
  const build = async (chosen) => {
    const used = chosen.flatMap((name, at) => (name && name !== "key" ? [[name, at]] : []));
    const [keyAt, columns] = [chosen.indexOf("key"), used.map(([name]) => name)];
    const addsStart = keyAt >= 0 && !isPrefixed && !chosen.includes("start");
    const toRow = async ([number, cells]) => {
      if (cells.length === 0) return [number, []];
      const row = used.map(([name, at]) => (name === "hash" ? checkHash(cells[at]) : cells[at]));
      if (keyAt < 0) return [number, row];
      const [hash, start] = await hashKey(cells[keyAt]);
      return [number, [...row, hash, ...(addsStart ? [start] : [])]];
    };
    const rows = [];
    for (let at = 0; at < content.rows.length; at += HASHED_AT_ONCE) {
      rows.push(...(await Promise.all(content.rows.slice(at, at + HASHED_AT_ONCE).map(toRow))));
    }
    if (keyAt >= 0) columns.push("hash", ...(addsStart ? ["start"] : []));
    return { columns, rows, hashed: keyAt >= 0 ? "browser" : "nowhere" };
  };

  const findFault = (chosen) => {
    const twice = fields.find((field) => chosen.filter((name) => name === field.name).length > 1);
    if (twice) return `two columns are ${twice.label}; choose one`;
    const holders = chosen.filter((name) => name === "key" || name === "hash").length;
    if (holders > 1) return "both Full key and Hash are chosen; choose one of them";
    return holders ? "" : "choose the column that is Full key or Hash";
  };

  const send = async () => {
    await read.pending;
    if (!faultText.hidden && !content) return;
    if (!content) {
      showFault("choose a file, or paste its content");
      return;
    }
    const chosen = [...panel.querySelectorAll("select")].map((select) => select.value);
    const fault = findFault(chosen);
    showFault(fault);
    if (fault) {
      panel.querySelector("select").focus();
      return;
    }
    if (form.dataset.sent) return;
    form.dataset.sent = "yes";
    table.value = JSON.stringify(await build(chosen));
    // The file itself stays here.
    file.disabled = true;
    pasted.disabled = true;
    form.submit();
  };

  const start = () => (read.pending = read());
  file.addEventListener("change", start);
  pasted.addEventListener("input", () => {
    file.value = "";
    start();
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    event.stopPropagation();
    send();
  });
  addEventListener("pageshow", () => {
    // The browser may have kept the page, or the file, in memory.
    [file.disabled, pasted.disabled, table.value] = [false, false, ""];
    delete form.dataset.sent;
    start();
  });
})();
