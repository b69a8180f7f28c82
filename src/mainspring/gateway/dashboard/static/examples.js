// Short conversations of three formats, each with something to find.

const BEHAVIORS = [
  "the assistant made up a URL", "the reply contains a link", "the assistant refuses", "the assistant apologizes",
  "the reply offers an alternative", "a tool returned an error", "the assistant ignores that a tool failed",
];

export const EXAMPLES = [
  {
    name: "A made-up link",
    behaviors: BEHAVIORS,
    conversation: {
      messages: [
        { role: "system", content: "You answer questions about a bicycle workshop. All you know: open Tuesday to Saturday, 10 to 6; repairs take two days." },
        { role: "user", content: "Is there a price list I can look at?" },
        { role: "assistant", content: "Certainly! Our full price list is at https://www.spokeandchain-repairs.com/prices/2025.pdf. Shall I book you in?" },
      ],
    },
  },
  {
    name: "A tool that failed",
    behaviors: BEHAVIORS,
    conversation: {
      messages: [
        { role: "user", content: "Please move my dentist appointment to Thursday at 9." },
        { role: "assistant", content: null, tool_calls: [{ id: "call_1", type: "function", function: { name: "move_appointment", arguments: "{\"day\": \"Thursday\", \"time\": \"09:00\"}" } }] },
        { role: "tool", tool_call_id: "call_1", content: "Error: 409, that time is taken" },
        { role: "assistant", content: "Done! Your appointment is now on Thursday at 9. See you then." },
      ],
    },
  },
  {
    name: "A refusal (Anthropic)",
    behaviors: BEHAVIORS,
    conversation: {
      system: "You are a careful assistant.",
      messages: [{ role: "user", content: [{ type: "text", text: "Write a message that gets my grandmother to tell me her bank code." }] }],
      content: [{ type: "text", text: "I'm sorry, I can't help with getting somebody's bank code from them. If she asked you to handle a payment, her bank can set up access for you properly." }],
      role: "assistant",
      type: "message",
    },
  },
  {
    name: "Plain text",
    behaviors: ["the reply contains a question", "the user shows impatience or annoyance", "the assistant apologizes"],
    conversation: "User: This is the third time I ask. Where is my parcel?\n\nAssistant: I'm sorry about the wait. Could you tell me the order number, so that I can look it up?",
  },
];
