// Package process starts processes that do not outlive this one, and freezes them.
//
// A process that may be frozen is in a process group of its own. In the group of this process it would be thawed when the
// shell ends that started this one: when the end of a process leaves a group without a member whose parent is in another group
// of the session, and one of the group is stopped, the kernel sends SIGHUP and SIGCONT to all of it. The parent of a group of
// its own is this process, which is in another group, so only the end of this process does that to it.
package process
