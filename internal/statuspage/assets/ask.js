// Questions to the agent.

// patience bounds a question: the agent bounds each that it asks others itself.
const patience = 20000;

// ask returns the agent's answer, or {problem} with a sentence.
export async function ask(path) {
  try {
    const answer = await fetch(path, { signal: AbortSignal.timeout(patience) });
    if (answer.ok) return await answer.json();
    return { problem: (await answer.text()).trim() };
  } catch (e) {
    return { problem: `The agent does not answer: ${e.message}` };
  }
}
