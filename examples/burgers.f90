! burgers.f90: a solver that trains a surrogate of its expensive part while it runs, and then uses it.
! Burgers' equation u_t + u u_x = ((nu + k) u_x)_x + f on a ring. The eddy viscosity k of a cell depends on u and u_x by an
! equation that is solved by iteration, in each cell and step. First the solver computes k so, and the network learns it
! from each state; then the network computes it.
program burgers
  use closure
  implicit none
  integer, parameter :: cells = 128, training = 3000, using = 1000
  real, parameter :: pi = acos(-1.0), dx = 2 * pi / cells, dt = 0.004, nu = 0.02, k_scale = 0.1
  type(closure_trainer) :: model
  real(c_float), pointer :: x(:,:), y(:,:), target(:,:)
  real(c_double) :: loss, first = 0, last = 0
  real :: u(cells), full(cells), with(cells), without(cells)
  integer :: i
  real :: seconds(3)

  call model%open()
  call model%values(amos_inputs, 'x', x)            ! x(2, cells): the network's shape [cells, 2], reversed
  call model%values(amos_inputs, 'target', target)
  call model%values(amos_outputs, 'y', y)

  u = [(sin(i * dx), i = 1, cells)]
  do i = 1, training
    call fill(u)
    target(1, :) = exact(u) / k_scale
    call model%step(loss)
    if (i <= 100) first = first + loss / 100
    if (i > training - 100) last = last + loss / 100
    call advance(u, target(1, :) * k_scale, i)
  end do
  print '(a, es9.2, a, es9.2, a, i0, a)', 'loss ', first, ' at first, ', last, ' after ', training, ' steps'

  ! From here on, three solvers: by the closure, by the network, and without k.
  full = u
  with = u
  without = u
  call cpu_time(seconds(1))
  do i = training + 1, training + using
    call advance(full, exact(full), i)
  end do
  call cpu_time(seconds(2))
  do i = training + 1, training + using
    call fill(with)
    call model%forward()
    call advance(with, y(1, :) * k_scale, i)
  end do
  call cpu_time(seconds(3))
  do i = training + 1, training + using
    call advance(without, 0 * u, i)
  end do
  print '(a, i0, a, es9.2, a, es9.2, a)', 'error after ', using, ' steps: ', distance(with, full), ' with the network, ', &
    distance(without, full), ' without k'
  print '(a, f6.3, a, f6.3, a)', 'seconds: ', seconds(2) - seconds(1), ' by the closure, ', seconds(3) - seconds(2), &
    ' by the network'
  call model%close()
  if (last > 0.1 * first .or. distance(with, full) > 0.1 * distance(without, full)) error stop 'the surrogate is poor'

contains

  ! The gradient on the right edge of each cell.
  function slope(u)
    real, intent(in) :: u(cells)
    real :: slope(cells)
    slope = (cshift(u, 1) - u) / dx
  end function

  subroutine fill(u)
    real, intent(in) :: u(cells)
    x(1, :) = u
    x(2, :) = slope(u)
  end subroutine

  ! The eddy viscosity, the solution of k (1 + 50 k + u^2) = k_scale s^2 / (1 + s^2), by damped iteration.
  function exact(u) result(k)
    real, intent(in) :: u(cells)
    real :: k(cells), s(cells)
    integer :: i
    s = slope(u)
    k = 0
    do i = 1, 1000
      k = 0.95 * k + 0.05 * k_scale * s**2 / (1 + s**2) / (1 + 50 * k + u**2)
    end do
  end function

  subroutine advance(u, k, step)
    real, intent(inout) :: u(cells)
    real, intent(in) :: k(cells)
    integer, intent(in) :: step
    real :: flux(cells)
    integer :: i
    flux = (nu + k) * slope(u) - (u + cshift(u, 1))**2 / 8
    u = u + dt * ((flux - cshift(flux, -1)) / dx + [(sin(2 * i * dx + step * dt), i = 1, cells)])
  end subroutine

  real function distance(a, b)
    real, intent(in) :: a(cells), b(cells)
    distance = norm2(a - b) / norm2(b)
  end function
end program
