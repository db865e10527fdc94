// Package imports turns jobs into recipes: it accepts them, works them in durable steps, and reports their status.
//
// The state of a job is one record in a bucket, changed only under the condition that no other process changed it meanwhile.
// A final state stays, unless a client asks for a retry, which begins another run of the job.
//
// The transcript of a source and what is extracted from it are computed once for all jobs, by a flight.Flight; the steps
// of a job are kept by the worker, so that a job goes on where its worker died.
package imports
