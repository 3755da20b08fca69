// A conversation of the independent client with a server; what it saw goes to standard output.
//
//   node client.mjs URL BINDING [TOKEN]
//
// It checks nothing: the Python test that starts it does.

import { ClientFactory, ClientFactoryOptions, JsonRpcTransportFactory, RestTransportFactory } from "@a2a-js/sdk/client";
import { GrpcTransportFactory } from "@a2a-js/sdk/client/grpc";
import { Role, TaskState } from "@a2a-js/sdk";
import { randomUUID } from "node:crypto";

const [url, binding, token] = process.argv.slice(2);

const withToken = (input, init = {}) => {
  const headers = new Headers(init.headers);
  if (token) headers.set("Authorization", `Bearer ${token}`);
  return fetch(input, { ...init, headers });
};

const factory = new ClientFactory(
  ClientFactoryOptions.createFrom(ClientFactoryOptions.default, {
    transports: [
      new JsonRpcTransportFactory({ fetchImpl: withToken }),
      new RestTransportFactory({ fetchImpl: withToken }),
      new GrpcTransportFactory(),
    ],
    preferredTransports: [binding],
  }),
);

const request = (order, more = {}, configuration = {}) => ({
  tenant: "",
  metadata: undefined,
  message: {
    messageId: randomUUID(),
    contextId: "",
    taskId: "",
    role: Role.ROLE_USER,
    parts: [
      {
        content: { $case: "text", value: JSON.stringify(order) },
        metadata: undefined,
        filename: "",
        mediaType: "",
      },
    ],
    metadata: undefined,
    extensions: [],
    referenceTaskIds: [],
    ...more,
  },
  configuration: {
    acceptedOutputModes: [],
    taskPushNotificationConfig: undefined,
    returnImmediately: false,
    ...configuration,
  },
});

const stateOf = (status) => TaskState[status.state].replace("TASK_STATE_", "");
const textsOf = (parts) => parts.map((part) => part.content?.value);

const eventOf = ({ payload }) => {
  switch (payload?.$case) {
    case "task":
      return { task: payload.value.id, state: stateOf(payload.value.status) };
    case "statusUpdate":
      return { task: payload.value.taskId, state: stateOf(payload.value.status) };
    case "artifactUpdate":
      return { artifact: payload.value.artifact.name, texts: textsOf(payload.value.artifact.parts) };
    default:
      return { message: textsOf(payload.value.parts) };
  }
};

const refusal = async (asked) => {
  try {
    await asked;
    return null;
  } catch (error) {
    return error.name;
  }
};

const client = await factory.createFromUrl(url);
const seen = { card: (await client.getAgentCard()).name };

const sent = await client.sendMessage(request({ do: "artifacts", ticks: 2, every_s: 0 }));
seen.sent = { state: stateOf(sent.status), artifacts: sent.artifacts.map((one) => one.artifactId) };

seen.streamed = [];
for await (const event of client.sendMessageStream(request({ do: "work", events: true, ticks: 2 }))) {
  seen.streamed.push(eventOf(event));
}

const begun = await client.sendMessage(
  request({ do: "work", ticks: 600 }, {}, { returnImmediately: true }),
);
seen.begun = stateOf(begun.status);
const watched = (async () => {
  const states = [];
  for await (const event of client.resubscribeTask({ tenant: "", id: begun.id })) {
    states.push(eventOf(event).state);
  }
  return states;
})();
await new Promise((resolve) => setTimeout(resolve, 300));
const canceled = await client.cancelTask({ tenant: "", id: begun.id, metadata: undefined });
seen.canceled = { state: stateOf(canceled.status), words: textsOf(canceled.status.message.parts) };
seen.watched = await watched;
seen.stored = stateOf((await client.getTask({ tenant: "", id: begun.id })).status);
seen.again = stateOf(
  (await client.cancelTask({ tenant: "", id: begun.id, metadata: undefined })).status,
);

const asked = await client.sendMessage(request({ do: "ask" }));
seen.asked = stateOf(asked.status);
const answered = await client.sendMessage(request({ do: "ask" }, { taskId: asked.id }));
seen.answered = {
  state: stateOf(answered.status),
  same: answered.id === asked.id && answered.contextId === asked.contextId,
};

const listed = await client.listTasks({
  tenant: "",
  contextId: begun.contextId,
  status: TaskState.TASK_STATE_UNSPECIFIED,
  pageToken: "",
  statusTimestampAfter: undefined,
});
seen.listed = listed.tasks.map((task) => task.id === begun.id);

seen.refused = {
  unknown: await refusal(client.getTask({ tenant: "", id: "nowhere" })),
  over: await refusal(client.cancelTask({ tenant: "", id: sent.id, metadata: undefined })),
};

console.log(JSON.stringify(seen));
process.exit(0);
