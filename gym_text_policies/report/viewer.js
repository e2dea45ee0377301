// The episode viewer: choose an environment, a policy and a seed; step with the arrow keys. Text of models and games is written
// with textContent only, never as markup.
"use strict";
(() => {
  for (const gif of document.querySelectorAll(".gif")) gif.addEventListener("click", () => gif.classList.toggle("large"));
  const byId = (id) => document.getElementById(id);
  const index = JSON.parse(byId("index").textContent);
  if (!index.length) return;
  const picks = { environment: byId("pick-environment"), policy: byId("pick-policy"), seed: byId("pick-seed") };
  const slider = byId("step");
  let episode = null; // {steps, last, error, pictures, shown, gold}; each step has its whole observation and prompt
  let position = 0; // number of steps before the shown state; the last position is the end

  function element(tag, text, kind) {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    if (kind) made.className = kind;
    return made;
  }

  // A thought can be long, so it is folded.
  function folded(title, text) {
    const made = element("details");
    made.append(element("summary", title), element("div", text));
    return made;
  }

  function cell(value) {
    if (!(value instanceof Node)) return element("dd", value);
    const made = element("dd");
    made.append(value);
    return made;
  }

  function fill(select, values, wanted) {
    const options = values.map(([value, text]) => {
      const option = element("option", text);
      option.value = value;
      return option;
    });
    select.replaceChildren(...options);
    if (values.some(([value]) => value === wanted)) select.value = wanted;
  }

  const unique = (values) => [...new Set(values)].map((value) => [value, value]);

  function choose() {
    const of = (wanted) => index.filter((entry) => Object.entries(wanted).every(([name, value]) => entry[name] === value));
    const before = Object.fromEntries(Object.entries(picks).map(([name, select]) => [name, select.value]));
    fill(picks.environment, unique(index.map((entry) => entry.environment)), before.environment);
    const environment = picks.environment.value;
    fill(picks.policy, unique(of({ environment }).map((entry) => entry.policy)), before.policy);
    const entries = of({ environment, policy: picks.policy.value });
    const seeds = entries.map((entry) => [entry.seed, `${entry.seed}: ${entry.outcome}, ${number(entry.return)}`]);
    fill(picks.seed, seeds, before.seed);
    const entry = entries.find((candidate) => candidate.seed === picks.seed.value);
    open(index.indexOf(entry));
  }

  // A step is stored as the difference to the one before. Its observation has the fields that changed. Its prompt begins with the
  // number of messages that are the same; the new messages follow.
  function open(entryIndex) {
    const data = JSON.parse(byId(`episode-${entryIndex}`).textContent);
    let observation = {};
    let prompt = [];
    const steps = data.steps.map((step) => {
      observation = { ...observation, ...step.observation };
      const messages = step.decision.messages;
      prompt = messages ? [...prompt.slice(0, messages[0]), ...messages.slice(1)] : [];
      return { ...step, observation, prompt };
    });
    const last = { ...observation, ...data.last_observation };
    episode = { steps, last, error: data.error, pictures: data.pictures, shown: data.shown, gold: data.gold_actions };
    slider.max = steps.length;
    show(0);
  }

  function number(value) {
    return value === undefined || value === null ? "-" : String(Math.round(value * 1000) / 1000);
  }

  function show(wanted) {
    position = Math.min(Math.max(wanted, 0), episode.steps.length);
    slider.value = position;
    const step = episode.steps[position];
    byId("place").textContent = step ? `step ${position + 1} of ${episode.steps.length}` : "the end";
    showPicture();
    showObservation(step ? step.observation : episode.last);
    showDecision(step);
    showProbabilities(step);
    showPrompt(step);
  }

  const sum = (figures) => Object.values(figures).reduce((whole, figure) => whole + figure, 0);

  function showPicture() {
    let at = Math.min(position, episode.shown.length - 1);
    while (at > 0 && episode.shown[at] === null) at -= 1;
    const which = at >= 0 ? episode.shown[at] : null;
    const box = byId("picture");
    box.hidden = which === null || which === undefined;
    if (box.hidden) return;
    const image = element("img");
    image.alt = `picture before step ${position + 1}`;
    const picture = episode.pictures[which];
    image.src = `data:image/${picture.startsWith("UklG") ? "webp" : "png"};base64,${picture}`;  // the first bytes: RIFF
    box.replaceChildren(image);
  }

  // The goal and the text come first. The list of actions, which can be long, comes last.
  function showObservation(observation) {
    const ranks = { goal: 0, text: 1, valid_actions: 3 };
    const rank = (name) => ranks[name] ?? 2;
    const names = Object.keys(observation).sort((first, second) => rank(first) - rank(second));
    const parts = names.flatMap((name) => {
      const value = observation[name];
      const isList = Array.isArray(value) && value.every((part) => typeof part !== "object");
      const text = typeof value === "string" ? value : isList ? value.join(", ") : JSON.stringify(value);
      return [element("dt", name), element("dd", text)];
    });
    byId("seen").replaceChildren(...parts);
  }

  function total(name, to) {
    return episode.steps.slice(0, to).reduce((sum, step) => sum + (step[name] || 0), 0);
  }

  function showDecision(step) {
    const rows = [];
    if (step) {
      const { decision } = step;
      const expert = step.gold_action || episode.gold[position];
      const why = decision.invalid || decision.finish;
      const thought = decision.tokens_reasoning || decision.thought_cut;
      rows.push(["action", decision.action + (decision.valid === false ? ` (the answer could not be used${why ? `: ${why}` : ""})` : "")]);
      if (expert) rows.push(["expert", expert + (expert === decision.action ? " (the same)" : "")]);
      rows.push(["reward", number(step.reward)], ["return so far", number(total("reward", position + 1))]);
      rows.push(["score", number(step.score)]);
      if (!step.action_was_valid) rows.push(["", "the game did not understand the action"]);
      if (thought) {
        const title = `${decision.tokens_reasoning || 0} tokens${decision.thought_cut ? ", cut" : ""}`;
        rows.push(["thought", folded(title, decision.reasoning || "")]);
      }
      if (decision.completion) rows.push(["answer", decision.completion]);
      if (!thought && decision.reasoning && decision.reasoning !== decision.completion) rows.push(["reasoning", decision.reasoning]);
      if (decision.picture) {
        rows.push(["picture", episode.shown.length > position ? "the model saw this picture" : "the model saw one"]);
      }
      if (decision.visits) {
        const costs = `${decision.model_calls || 0} model calls, ${decision.simulator_steps || 0} steps in copies of the game`;
        rows.push(["looked ahead", `simulations: ${sum(decision.visits)}; ${costs}`]);
      }
      if (decision.plan && decision.plan.length) rows.push(["plan to win", decision.plan.join(" → ")]);
      if (decision.retries) rows.push(["asked again", `${decision.retries} times`]);
      if (decision.tokens_in) rows.push(["tokens", `${decision.tokens_in} in, ${decision.tokens_out || 0} out`]);
      if (decision.cost) rows.push(["cost", `$ ${decision.cost}`]);
    } else {
      const last = episode.steps[episode.steps.length - 1];
      const lost = last && (last.failure || episode.steps.some((step) => step.success !== null)) ? "lost" : "ended";
      const over = last && last.success ? "won" : last && last.terminated ? lost : "truncated";
      rows.push(["ended", episode.error ? `error: ${episode.error}` : over]);
      rows.push(["return", number(total("reward", episode.steps.length))]);
    }
    byId("decision").replaceChildren(...rows.flatMap(([name, text]) => [element("dt", name), cell(text)]));
  }

  // Of a policy that looks ahead, each action has two bars: the prior, and the share of the simulations that tried the action.
  function showProbabilities(step) {
    const known = step && step.decision.probabilities;
    byId("probabilities-part").hidden = !known;
    if (!known) return;
    const { action: taken, visits, values } = step.decision;
    const expert = step.gold_action || episode.gold[position];
    const simulations = visits && Math.max(sum(visits), 1);
    const of = (figures, action) => (figures && figures[action]) || 0;
    const ranked = Object.entries(known).sort((first, second) => of(visits, second[0]) - of(visits, first[0]) || second[1] - first[1]);
    const lines = ranked.map(([action, probability]) => {
      const line = element("div", undefined, visits ? "chance ahead" : "chance");
      const marks = (action === taken ? " ← taken" : "") + (action === expert ? " ← expert" : "");
      const kind = action === taken ? "bar taken" : "bar";
      line.append(element("span", action + marks, "name"), rail(probability, kind), element("span", probability.toFixed(3), "value"));
      if (visits) {
        const count = of(visits, action);
        line.append(rail(count / simulations, `${kind} visits`), element("span", String(count), "value"));
        line.append(element("span", values && action in values ? values[action].toFixed(3) : "-", "value"));
      }
      return line;
    });
    byId("probabilities-title").textContent = visits ? "What it found by looking ahead" : "Probabilities of the valid actions";
    byId("probabilities").replaceChildren(...(visits ? [heads(), ...lines] : lines));
  }

  function rail(share, kind) {
    const bar = element("span", undefined, kind);
    bar.style.width = `${Math.max(100 * share, share ? 0.5 : 0)}%`;
    const whole = element("span", undefined, "rail");
    whole.append(bar);
    return whole;
  }

  function heads() {
    const line = element("div", undefined, "chance ahead heads");
    const texts = ["action", "prior", "", "visits", "", "value"];
    line.append(...texts.map((text) => element("span", text, text === "value" ? "value" : undefined)));
    return line;
  }

  function showPrompt(step) {
    const messages = step ? step.prompt : [];
    byId("prompt-part").hidden = !messages.length;
    const parts = messages.flatMap((message) => {
      const said = cell(message.call ? `act(${message.call})` : message.content);
      if (message.reasoning) said.prepend(folded("thought", message.reasoning));
      return [element("dt", message.role), said];
    });
    byId("prompt").replaceChildren(...parts);
  }

  const jumps = { ArrowLeft: () => position - 1, ArrowRight: () => position + 1, Home: () => 0, End: () => episode.steps.length };
  document.addEventListener("keydown", (event) => {
    const held = event.altKey || event.ctrlKey || event.metaKey || event.shiftKey;
    if (!(event.key in jumps) || held || !inView()) return; // outside the viewer these keys scroll
    const far = event.key === "Home" || event.key === "End";
    if (far && event.target.tagName === "SELECT") return; // in a list these keys go to its ends
    event.preventDefault();
    show(jumps[event.key]());
  });

  function inView() {
    const box = byId("viewer").getBoundingClientRect();
    return box.top < window.innerHeight && box.bottom > 0;
  }

  for (const select of Object.values(picks)) select.addEventListener("change", choose);
  slider.addEventListener("input", () => show(Number(slider.value)));
  byId("back").addEventListener("click", () => show(position - 1));
  byId("forward").addEventListener("click", () => show(position + 1));
  choose();
})();
