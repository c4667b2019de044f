// The ollama package: chat and generate, streamed and whole, with a tool, a schema, and the model's description.
import { Ollama } from 'ollama';
import { check, url } from './check.mjs';

const client = new Ollama({ host: url });
const tools = [
  {
    type: 'function',
    function: {
      name: 'weather',
      description: 'the weather of a city',
      parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
    },
  },
];
const messages = [{ role: 'user', content: 'weather in Oslo?' }];

let call;
for await (const part of await client.chat({ model: 'fake', messages, tools, stream: true })) {
  call ??= part.message.tool_calls?.[0];
}
check(call?.function.arguments.city === 'Oslo', 'a call with its argument', call);
messages.push({ role: 'assistant', content: '', tool_calls: [call] });
messages.push({ role: 'tool', tool_name: 'weather', content: 'sunny' });
const answer = await client.chat({ model: 'fake', messages, tools });
check(answer.message.content === 'It is sunny.' && answer.done_reason === 'stop', 'the answer after the tool', answer);

const schema = { type: 'object', properties: { n: { type: 'integer' } }, required: ['n'], additionalProperties: false };
const shaped = await client.generate({ model: 'fake', prompt: 'schema', format: schema });
check(Number.isInteger(JSON.parse(shaped.response).n), 'a structured answer', shaped.response);

let streamed = '';
let last;
const options = { seed: 7, num_predict: 24 };
for await (const part of await client.generate({ model: 'fake', prompt: 'tell', options, stream: true })) {
  streamed += part.response;
  last = part;
}
const whole = await client.generate({ model: 'fake', prompt: 'tell', options });
check(last.done && streamed === whole.response, 'streamed equals whole', [streamed, whole.response]);
check(Array.isArray(whole.context) && whole.context.length > 0, 'the context comes back', whole.context);
check((await client.list()).models.some((model) => model.name.startsWith('fake')), 'the model is listed');
check((await client.show({ model: 'fake' })).capabilities.includes('completion'), 'its capabilities are shown');
