//! Other MCP servers behind one door.
//!
//! Owns: which servers there are and how they are reached, what each of them offers and has been seen to offer, who may see
//! what of it, the calls and tasks under way, and the `gateway.*` tools. Refuses to know: which source is ours, and how a
//! caller reached us.
//!
//! The laws it keeps: what is not listed is not found, not described and not called, by one decision; what a server says goes on
//! as it came, or is kept whole; a server that does not answer delays nobody but those who ask it.
