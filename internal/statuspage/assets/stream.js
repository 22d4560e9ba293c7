// The stream of events, and whether the agent answers.

// silence is how long an agent may say nothing: it sends a beat every 5 seconds.
const silence = 12000;
const waits = [1000, 2000, 4000, 8000];

// follow calls onEvent for each event, and onLink with {up, since, why} when the agent stops
// answering or answers again. since is this computer's time in milliseconds. A hidden tab holds no
// stream, of which browsers allow six to an address in all tabs together: its link is up: null.
export function follow(onEvent, onLink) {
  let heard = Date.now();
  let failures = 0;
  let up = null;
  let source = null; // null: the tab is hidden
  let timer = null;

  const report = (now, why) => {
    if (now && up === true) return;
    up = now;
    onLink({ up: now, since: heard, why });
  };
  const receive = (message) => {
    heard = Date.now();
    failures = 0;
    report(true, "");
    clearTimeout(timer);
    timer = setTimeout(() => lose("it says nothing"), silence);
    onEvent(JSON.parse(message.data));
  };
  const lose = async (why) => {
    clearTimeout(timer);
    source.close();
    report(false, why);
    const wait = waits[Math.min(failures++, waits.length - 1)];
    timer = setTimeout(connect, wait);
    const refusal = await whyRefused();
    if (refusal && up === false) report(false, refusal);
  };
  const connect = () => {
    source = new EventSource("/page/events");
    source.addEventListener("state", receive);
    source.addEventListener("beat", receive);
    source.onerror = () => lose("the connection is broken");
    timer = setTimeout(() => lose("it does not answer"), silence);
  };
  const turn = () => {
    if (document.visibilityState === "hidden") {
      clearTimeout(timer);
      source?.close();
      source = null;
      report(null, "");
    } else if (!source) {
      heard = Date.now(); // nobody asked before
      failures = 0;
      connect();
    }
  };
  document.addEventListener("visibilitychange", turn);
  turn();
}

// whyRefused asks once more, since an EventSource does not tell what the agent said.
async function whyRefused() {
  const end = new AbortController();
  setTimeout(() => end.abort(), 3000);
  try {
    const answer = await fetch("/page/events", { signal: end.signal });
    const refused = answer.status >= 400 ? (await answer.text()).trim() : "";
    end.abort();
    return refused;
  } catch {
    return "";
  }
}
