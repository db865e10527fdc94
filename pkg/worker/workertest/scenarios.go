package workertest

import (
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// errKilled is returned by a call of a process that was killed.
var errKilled = errors.New("workertest: killed")

// window returns a time longer than the stream remembers message IDs.
func (s *stage) window() (time.Duration, error) {
	stream, err := s.js.Stream(s.ctx, s.suite.Stream)
	if err != nil {
		return 0, fmt.Errorf("look up stream %s: %w", s.suite.Stream, err)
	}
	return stream.CachedInfo().Config.Duplicates + time.Second, nil
}

// republish inserts jobs that the stream may refuse as duplicates.
func (s *stage) republish(window time.Duration) error {
	s.pass(window)
	for _, job := range s.jobs(0, s.suite.Jobs) {
		var refused *jetstream.APIError
		if err := s.publish(job); err != nil && !errors.As(err, &refused) {
			return err
		}
	}
	return nil
}

func duplicateDelivery(s *stage) error {
	jobs := s.jobs(0, s.suite.Jobs)
	window, err := s.window()
	if err != nil {
		return err
	}
	if err := errors.Join(s.publish(jobs...), s.republish(window)); err != nil {
		return err
	}
	service := s.serve()
	if err := s.finish(jobs...); err != nil {
		return err
	}
	if err := errors.Join(s.republish(window), s.finish(jobs...)); err != nil {
		return err
	}
	return service.stop()
}

func slowHandler(s *stage) error {
	services := []*instance{s.serve(), s.serve()}
	jobs := s.jobs(0, s.suite.Jobs)
	held := s.recorder.hold(1, beforeEffect)
	if err := s.publish(jobs...); err != nil {
		return err
	}
	slow, err := s.reached(held)
	if err != nil {
		return err
	}
	s.pass(100 * s.ackWait)
	_, overlap, _ := s.recorder.look()
	if n := overlap[slow[0]]; n > 1 {
		err = fmt.Errorf("job %s was in %d handlers at once: tell the server that it is being worked", slow[0], n)
	}
	held.release(nil)
	return errors.Join(err, s.finish(jobs...), services[0].stop(), services[1].stop())
}

func poisonMessage(s *stage) error {
	jobs := s.jobs(0, s.suite.Jobs)
	poison := jobs[1]
	s.recorder.refuse(id(poison))
	service := s.serve()
	rest := append(s.jobs(0, 1), jobs[2:]...)
	if err := s.publish(jobs...); err != nil {
		return err
	}
	began := time.Now()
	err := s.finish(rest...)
	if waited := time.Since(began); waited > time.Minute {
		err = errors.Join(err, fmt.Errorf("the other jobs took %s: the poison message held them up", waited))
	}
	return errors.Join(err, s.dead(poison), service.stop())
}

func undecodableMessage(s *stage) error {
	jobs := s.jobs(0, s.suite.Jobs)
	jobs[0].Data = []byte("{")
	service := s.serve()
	if err := s.publish(jobs...); err != nil {
		return err
	}
	return errors.Join(s.finish(jobs[1:]...), s.dead(jobs[0]), service.stop())
}

func serverRestart(s *stage) error {
	service := s.serve()
	for round, at := range []moment{beforeEffect, afterEffect} {
		jobs := s.jobs(round*s.suite.Jobs, s.suite.Jobs)
		held := s.recorder.hold(minJobs, at)
		if err := s.publish(jobs...); err != nil {
			return err
		}
		_, err := s.reached(held)
		if err == nil {
			err = s.srv.Restart(s.ctx)
		}
		held.release(nil)
		if err := errors.Join(err, s.finish(jobs...)); err != nil {
			return err
		}
	}
	return service.stop()
}

func shutdownInFlight(s *stage) error {
	const bound = 10 * time.Minute // the longest time that a test gives a service
	service := s.serve()
	jobs := s.jobs(0, s.suite.Jobs)
	held := s.recorder.hold(minJobs, beforeEffect)
	if err := s.publish(jobs...); err != nil {
		return err
	}
	if _, err := s.reached(held); err != nil {
		return err
	}
	service.cancel()
	var err error
	select {
	case err = <-service.done:
		service.once.Do(func() { service.err = err })
	case <-time.After(bound):
		err = fmt.Errorf("the service did not end within %s: its handlers must end with their contexts", bound)
	}
	held.release(errKilled)
	if err != nil {
		return fmt.Errorf("shutdown: %w", err)
	}
	next := s.serve()
	return errors.Join(s.finish(jobs...), next.stop())
}

func clockJump(s *stage) error {
	const jump = 2 * time.Hour // a worker sends a request each second, so a day would take long
	service := s.serve()
	jobs := s.jobs(0, s.suite.Jobs)
	held := s.recorder.hold(1, beforeEffect)
	if err := s.publish(jobs...); err != nil {
		return err
	}
	if _, err := s.reached(held); err != nil {
		return err
	}
	s.pass(jump)
	held.release(nil)
	if err := s.finish(jobs...); err != nil {
		return err
	}
	s.pass(jump)
	later := s.jobs(s.suite.Jobs, s.suite.Jobs)
	return errors.Join(s.publish(later...), s.finish(append(jobs, later...)...), service.stop())
}

func killedProcess(s *stage) error {
	jobs := s.jobs(0, s.suite.Jobs)
	if err := errors.Join(s.offer(), s.publish(jobs...)); err != nil {
		return err
	}
	for _, at := range []moment{beforeEffect, afterEffect} {
		held := s.recorder.hold(1, at)
		p, err := s.spawn()
		if err != nil {
			return err
		}
		_, err = s.reached(held)
		err = errors.Join(err, p.Kill())
		held.release(errKilled)
		if err != nil {
			return err
		}
	}
	p, err := s.spawn()
	if err != nil {
		return err
	}
	more := s.jobs(s.suite.Jobs, s.suite.Jobs)
	if err := errors.Join(s.publish(more...), s.worked(s.suite.Jobs+minJobs), p.Kill()); err != nil { // in full flow
		return err
	}
	if p, err = s.spawn(); err != nil {
		return err
	}
	return errors.Join(s.finish(append(jobs, more...)...), p.Stop())
}

func pausedProcess(s *stage) error {
	if err := s.offer(); err != nil {
		return err
	}
	jobs := s.jobs(0, s.suite.Jobs)
	held := s.recorder.hold(1, beforeEffect)
	paused, err := s.spawn()
	if err == nil {
		err = s.publish(jobs...)
	}
	if err == nil {
		_, err = s.reached(held)
	}
	if err != nil {
		return err
	}
	if err = paused.Pause(true); errors.Is(err, errors.ErrUnsupported) {
		s.t.Skip(err)
	}
	successor, failed := s.spawn()
	if err := errors.Join(err, failed); err != nil {
		return err
	}
	err = s.finish(jobs...) // by the successor
	held.release(nil)       // the paused process's request is carried out
	err = errors.Join(err, paused.Pause(false), paused.Stop(), successor.Stop())
	return errors.Join(err, s.once(jobs...))
}
