// Keeps the page as it is now: told of a change, it fetches the parts that differ and puts them in place.
const status = document.getElementById("live");
const main = document.getElementById("main");
const liveAt = document.documentElement.dataset.root + "live";
let fetching = false;
let wanted = false;

function say(words, stale) {
  status.textContent = words;
  status.classList.toggle("stale", stale);
}

function put(id, hash, html) {
  const place = document.getElementById(id);
  const focused = document.activeElement;
  const way = focused && place.contains(focused) ? focused.getAttribute("href") || focused.name || "" : "";
  const open = [...place.querySelectorAll("details[open]")].map((it) => it.id);
  place.innerHTML = html;
  place.dataset.hash = hash;
  open.forEach((it) => it && document.getElementById(it)?.setAttribute("open", ""));
  if (way) {
    const again = [...place.querySelectorAll("a, button, input, select")];
    again.find((it) => it.getAttribute("href") === way || it.name === way)?.focus({ preventScroll: true });
  }
}

function arrange(order) {
  const have = [...main.children].map((it) => it.id);
  if (have.join() === order.join()) return;
  for (const section of [...main.children]) if (!order.includes(section.id)) section.remove();
  for (const id of order) {
    const place = document.getElementById(id) || document.createElement("section");
    place.id = id;
    main.append(place);
  }
}

async function update() {
  if (fetching) { wanted = true; return; }
  fetching = true;
  try {
    const have = [...main.children].map((it) => it.dataset.hash).join();
    const answer = await fetch(location.href.split("#")[0], { headers: { "X-Have": have } });
    if (answer.status === 404) say("it is gone", true);
    else if (!answer.ok) say("not up to date", true);
    else {
      const told = await answer.json();
      arrange(told.order);
      for (const [id, [hash, html]] of Object.entries(told.parts)) put(id, hash, html);
      say("up to date", false);
    }
  } catch { say("the agent does not answer", true); }
  fetching = false;
  if (wanted) { wanted = false; update(); }
}

// In the map the arrow keys go from tile to tile: ten thousand stops of the tab key are no way.
main.addEventListener("keydown", (event) => {
  const tile = event.target.closest?.(".t");
  const step = { ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity }[event.key];
  if (!tile || step === undefined) return;
  const tiles = [...main.querySelectorAll(".t")];
  const to = Math.min(tiles.length - 1, Math.max(0, tiles.indexOf(tile) + step));
  tiles[to].focus();
  event.preventDefault();
});

main.addEventListener("change", (event) => {
  const form = event.target.form;
  if (form?.matches("[data-auto]")) form.requestSubmit();
});

if (main.dataset.live) {
  let stream = null;
  const listen = () => {
    stream = new EventSource(liveAt);
    let shown = main.dataset.version;
    stream.addEventListener("changed", (event) => {
      if (event.data !== shown) { shown = event.data; update(); }
    });
    stream.onerror = () => { if (stream.readyState === EventSource.CLOSED) say("not live: too many viewers", true); };
  };
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) { stream?.close(); stream = null; }
    else if (!stream) { listen(); update(); }
  });
  if (!document.hidden) listen();
}
