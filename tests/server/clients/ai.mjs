// Vercel's AI SDK over the OpenAI-compatible provider: a tool loop in a stream, and an object bound by a schema.
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { generateText, Output, stepCountIs, streamText, tool } from 'ai';
import { z } from 'zod';
import { check, url } from './check.mjs';

const provider = createOpenAICompatible({ name: 'llamay', baseURL: `${url}/v1`, supportsStructuredOutputs: true });
const model = provider('fake');

const cities = [];
const result = streamText({
  model,
  maxRetries: 0,
  prompt: 'weather in Oslo?',
  stopWhen: stepCountIs(3),
  tools: {
    weather: tool({
      description: 'the weather of a city',
      inputSchema: z.object({ city: z.string() }),
      execute: async ({ city }) => {
        cities.push(city);
        return 'sunny';
      },
    }),
  },
  onError: ({ error }) => check(false, 'no error in the stream', String(error)),
});
let text = '';
for await (const part of result.textStream) text += part;
check(cities.join() === 'Oslo' && text === 'It is sunny.', 'a tool loop', [cities, text]);

const { output } = await generateText({
  model,
  maxRetries: 0,
  prompt: 'schema',
  output: Output.object({ schema: z.object({ n: z.number().int() }) }),
});
check(Number.isInteger(output.n), 'an object', output);
