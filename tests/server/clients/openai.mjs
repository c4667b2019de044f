// The openai package's streaming helpers: a tool loop, a parsed schema, and the events of Responses.
import OpenAI from 'openai';
import { zodResponseFormat } from 'openai/helpers/zod';
import { z } from 'zod';
import { check, url } from './check.mjs';

const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'unused', maxRetries: 0 });

const runner = client.chat.completions.runTools({
  model: 'fake',
  stream: true,
  messages: [{ role: 'user', content: 'weather in Oslo?' }],
  tools: [
    {
      type: 'function',
      function: {
        name: 'weather',
        description: 'the weather of a city',
        parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
        parse: JSON.parse,
        function: ({ city }) => `sunny in ${city}`,
      },
    },
  ],
});
const called = [];
runner.on('functionToolCall', (call) => called.push(call.arguments));
const content = await runner.finalContent();
check(called.length === 1 && JSON.parse(called[0]).city === 'Oslo', 'one call with its argument', called);
check(content === 'It is sunny.', 'the answer after the tool', content);

const stream = client.chat.completions.stream({
  model: 'fake',
  messages: [{ role: 'user', content: 'schema' }],
  response_format: zodResponseFormat(z.object({ n: z.number().int(), s: z.string() }), 'thing'),
  stream_options: { include_usage: true },
});
const final = await stream.finalChatCompletion();
const parsed = final.choices[0].message.parsed;
check(parsed && Number.isInteger(parsed.n) && typeof parsed.s === 'string', 'a parsed schema', parsed);
check(final.usage.total_tokens === final.usage.prompt_tokens + final.usage.completion_tokens, 'usage adds up');

const responses = client.responses.stream({ model: 'fake', input: 'hello there' });
let deltas = '';
for await (const event of responses) if (event.type === 'response.output_text.delta') deltas += event.delta;
const response = await responses.finalResponse();
check(response.status === 'completed' && response.output_text === deltas, 'deltas equal the text', response);
const next = await client.responses.create({ model: 'fake', input: 'and then?', previous_response_id: response.id });
check(next.usage.input_tokens_details.cached_tokens > 0, 'the second turn is not read again', next.usage);

const page = await client.models.list();
check(page.data.some((model) => model.id === 'fake'), 'the model is listed');
