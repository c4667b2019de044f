// @anthropic-ai/sdk: streaming helpers with their events, a tool loop, and a structured answer.
import Anthropic from '@anthropic-ai/sdk';
import { check, url } from './check.mjs';

const client = new Anthropic({ baseURL: url, apiKey: 'unused', maxRetries: 0 });
const tools = [
  {
    name: 'weather',
    description: 'the weather of a city',
    input_schema: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
  },
];
const messages = [{ role: 'user', content: 'weather in Oslo?' }];

const first = client.messages.stream({ model: 'fake', max_tokens: 400, messages, tools });
let partial = '';
first.on('inputJson', (delta) => (partial += delta));
const asked = await first.finalMessage();
const call = asked.content.find((block) => block.type === 'tool_use');
check(asked.stop_reason === 'tool_use' && call?.input.city === 'Oslo', 'a call with its input', asked);
check(JSON.parse(partial).city === 'Oslo', 'partial JSON adds up', partial);

messages.push({ role: 'assistant', content: asked.content });
messages.push({ role: 'user', content: [{ type: 'tool_result', tool_use_id: call.id, content: 'sunny' }] });
const second = client.messages.stream({ model: 'fake', max_tokens: 400, messages, tools });
let text = '';
second.on('text', (delta) => (text += delta));
const answered = await second.finalMessage();
check(answered.stop_reason === 'end_turn' && text === 'It is sunny.', 'the answer after the tool', answered);
check(answered.usage.cache_read_input_tokens > 0, 'the first turn is not read again', answered.usage);

const shaped = await client.messages.create({
  model: 'fake',
  max_tokens: 400,
  messages: [{ role: 'user', content: 'schema' }],
  output_config: {
    format: {
      type: 'json_schema',
      schema: { type: 'object', properties: { n: { type: 'integer' } }, required: ['n'], additionalProperties: false },
    },
  },
});
check(Number.isInteger(JSON.parse(shaped.content[0].text).n), 'a structured answer', shaped.content);

const counted = await client.messages.countTokens({ model: 'fake', messages: [{ role: 'user', content: 'schema' }] });
const total = shaped.usage.input_tokens + shaped.usage.cache_read_input_tokens + shaped.usage.cache_creation_input_tokens;
check(counted.input_tokens === total, 'counted as read', [counted, shaped.usage]);
