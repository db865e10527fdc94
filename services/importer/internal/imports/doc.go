// Package imports turns jobs into recipes: it takes them in, works them in durable steps, and tells where they stand.
//
// The state of a job is one record in a bucket, changed only under the condition that nobody else changed it meanwhile.
// A final state stays, but for a retry that somebody asks for, which begins another run of the job.
//
// The transcript of a source and what is extracted from it are computed once for all jobs, by a flight.Flight; the steps
// of a job are kept by the worker, so that a job goes on where its worker died.
package imports
